"""LlamaIndex: embeddings of OpenAI's form, and a rerank of Jina's.

python with_llama_index.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

import math
from typing import Any

from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from report import DOCUMENTS, MODEL, Checks, ranked, same

check = Checks("llama-index-core")
embedder = OpenAILikeEmbedding(model_name=MODEL, api_base=check.url, api_key="unused")


def is_near(one: list[float], other: list[float]) -> bool:
    return all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(one, other, strict=True))


@check
def several() -> None:
    """get_text_embedding_batch, and get_query_embedding of one of them"""
    found = embedder.get_text_embedding_batch(DOCUMENTS)
    same(len(found), len(DOCUMENTS))
    same(is_near(found[0], embedder.get_query_embedding(DOCUMENTS[0])), True)


@check
async def asynchronous() -> None:
    """aget_text_embedding"""
    found = await embedder.aget_text_embedding(DOCUMENTS[0])
    same(is_near(found, embedder.get_text_embedding(DOCUMENTS[0])), True)


@check
def reranked() -> None:
    """JinaRerank"""
    ranker: Any = JinaRerank(model=MODEL, base_url=check.url, api_key="unused", top_n=3)
    nodes = [NodeWithScore(node=TextNode(text=text), score=0) for text in DOCUMENTS]
    found = ranker.postprocess_nodes(nodes, query_str=DOCUMENTS[-1])
    ranked([(DOCUMENTS.index(each.text), each.score) for each in found])


check.run()
