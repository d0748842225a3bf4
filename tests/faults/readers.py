"""All readers of files: undamaged files, and the commands that read them."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .commands import SMALL, TRAIN
from .scenarios import Folder
from .shim import FAULTS
from .warm import Injected


@dataclass(frozen=True)
class Reader:
    """Commands that read the files below `area`; one of the files at a time is damaged."""

    name: str
    # Each is run on the damaged files; {} stands for the file of readers that have one.
    lines: tuple[str, ...]
    files: dict[str, bytes]
    learns: bool = False


def readers(place: Folder, learns: bool) -> Iterator[Reader]:
    yield from _tokenizers(place)
    yield from _corpora()
    yield from _tokens(place)
    if learns:
        yield from _models(place)


def _below(folder: Path, prefix: str = "") -> dict[str, bytes]:
    """The files below a folder, by name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {prefix + str(path.relative_to(folder)): path.read_bytes() for path in files}


def _tokenizers(place: Folder) -> Iterator[Reader]:
    use = ("inspect area/{} hello,12345", "encode -t area/{} inputs/corpus/0.txt")
    for to, name in {
        "huggingface": "a.json",
        "tiktoken": "a.tiktoken",
        "minbpe": "a.model",
    }.items():
        place.empty()
        place.must(f"convert inputs/tokenizer.json --to {to} -o area/{name}")
        lines = tuple(line.format(name) for line in use)
        if to == "tiktoken":
            lines = tuple(f"{line} --pattern gpt2" for line in lines)
        if to == "minbpe":
            lines += ("api compat-minbpe area/a.model",)
        yield Reader(f"tokenizer-{to}", (*lines, "api serve area"), _below(place.area))
    place.empty()
    place.must("convert inputs/tokenizer.json --to gpt2 -o area/pair")
    lines = tuple(line.format("pair") for line in use)
    yield Reader("tokenizer-gpt2", (*lines, "api serve area"), _below(place.area))
    place.empty()
    place.must("count inputs/corpus -o area/some.counts")
    line = "train-tokenizer --counts area/some.counts -o area/out.json --vocab-size 290"
    lines = (line, "api counts area/some.counts", "api serve area")
    yield Reader("counts", lines, _below(place.area))


def _corpora() -> Iterator[Reader]:
    texts = ["low lower lowest", "naïve 日本語 text", 'say "no", twice', "<|endoftext|>"] * 20
    lines = "".join(json.dumps({"text": text, "n": [1, {}]}) + "\n" for text in texts).encode()
    quoted = (text.replace('"', '""') for text in texts)
    rows = ("n,text\r\n" + "".join(f'1,"{text}"\r\n' for text in quoted)).encode()
    text = "\n".join(texts).encode()
    plain = {"txt": text, "jsonl": lines, "csv": rows, "tsv": rows.replace(b",", b"\t")}
    plain |= {"tar": _tar(plain), "zip": _zip(plain)}
    with contextlib.suppress(ImportError):
        plain |= _columns(texts)
    for ending, data in plain.items():
        yield _corpus(ending, data)
    packings = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}
    with contextlib.suppress(ImportError):
        import zstandard

        packings["zst"] = zstandard.compress
    for packing, pack in packings.items():
        for ending in ("jsonl", "csv", "tar"):
            yield _corpus(f"{ending}.{packing}", pack(plain[ending]))


def _corpus(ending: str, data: bytes) -> Reader:
    count = f"count area/a.{ending} -o area/out.counts --overwrite"
    encode = f"encode area/a.{ending} -t inputs/tokenizer.json -o area/out --overwrite"
    lines = (count, f"{count} --on-error skip", f"{encode} --on-error skip")
    return Reader(f"corpus-{ending}", lines, {f"a.{ending}": data})


def _tar(members: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for ending, content in members.items():
            info = tarfile.TarInfo(f"long/{'name' * 30}.{ending}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def _zip(members: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        methods = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        for (ending, content), method in zip(members.items(), methods):
            archive.writestr(f"d/a.{ending}", content, compress_type=method)
    return data.getvalue()


def _columns(texts: list[str]) -> dict[str, bytes]:
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.table({"n": list(range(len(texts))), "text": texts})
    parquet, arrow = io.BytesIO(), io.BytesIO()
    pyarrow.parquet.write_table(table, parquet, row_group_size=20)
    pyarrow.feather.write_feather(table, arrow)
    return {"parquet": parquet.getvalue(), "arrow": arrow.getvalue()}


def _tokens(place: Folder) -> Iterator[Reader]:
    encode = "encode inputs/corpus -t inputs/tokenizer.json -o area/tokens --threads 1"
    place.empty()
    place.must(f"{encode} --val-fraction 0.2 --shard-tokens 5000")
    verify = "verify area/tokens -t inputs/tokenizer.json"
    decode = "decode area/tokens -t inputs/tokenizer.json --split train -o area/out --overwrite"
    lines = (verify, f"{verify} --source inputs/corpus", decode, "api tokens area/tokens")
    lines += ("api serve area",)
    yield Reader("tokens", lines, _below(place.area))
    for name, options in {"unfinished": "", "unfinished-shuffled": " --shuffle"}.items():
        place.empty()
        line = f"{encode}{options} --shard-tokens 3000"
        calls = place.must(line, Injected(place.area)).calls
        place.empty()
        place.run(line, Injected(place.area, calls * 2 // 3, FAULTS["kill"]))
        resume = f"{line} --resume"
        yield Reader(f"tokens-{name}", (resume,), _below(place.area))
    place.empty()
    line = "count inputs/corpus -o area/some.counts --threads 1"
    calls = place.must(line, Injected(place.area)).calls
    place.empty()
    place.run(line, Injected(place.area, calls * 2 // 3, FAULTS["kill"]))
    yield Reader("counts-unfinished", (f"{line} --resume",), _below(place.area))


def _models(place: Folder) -> Iterator[Reader]:
    place.empty()
    shutil.copytree(place.path / "inputs" / "run", place.area / "run")
    generate = "generate area/run ab --max-tokens 3 --seed 0"
    evaluate = "evaluate area/run inputs/tokens --batch-size 2"
    resume = f"train inputs/tokens -o area/run --resume {TRAIN} --steps 6"
    plot = "plot area/run -o area/loss.svg --overwrite"
    export = "export area/run -o area/model --overwrite"
    load = "api checkpoint area/run/step-00000004"
    report = "report area/run -o area/report.html --overwrite"
    serve = "api serve area"
    lines = (generate, evaluate, export, plot, report, "account area/run", load, serve, resume)
    yield Reader("run", lines, _below(place.area), learns=True)
    yield Reader(
        "imported",
        ("import area/model -o area/out --overwrite",),
        _below(place.path / "inputs" / "model", "model/"),
        learns=True,
    )
    model = 'd_model = 16\nnum_heads = 2\nnorm = "pre"\nrope_theta = 1e4\n'
    train = 'lr = 1e-3\noptimizer = "adamw"\nseed = 3\nkeep = 1\nwarmup = 1\n'
    settings = f"[model]\n{model}\n[train]\n{train}"
    # The options that determine how long it takes are not in the file.
    train = f"train inputs/tokens -o area/out --overwrite --config area/a.toml --steps 1 {SMALL}"
    account = f"account --config area/a.toml {SMALL.split(' --eval')[0]}"
    yield Reader("settings", (account, train), {"a.toml": settings.encode()}, learns=True)
    ids = (place.path / "inputs" / "tokens" / "shard-00000.npy").read_bytes()
    evaluate = "evaluate inputs/run area/ids.{} --batch-size 2"
    yield Reader("ids-npy", (evaluate.format("npy"),), {"ids.npy": ids}, learns=True)
    yield Reader("ids-bin", (evaluate.format("bin"),), {"ids.bin": ids[128:]}, learns=True)
    place.empty()
    sweep = f"sweep inputs/tokens -o area/sweep --lr 1e-3,1e-2 --steps 2 {SMALL} --tensorboard no"
    place.must(sweep)
    yield Reader("sweep", ("api serve area", f"{sweep} --resume"), _below(place.area), learns=True)
