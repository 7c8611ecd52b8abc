PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test lint format protos docs bench

run: ## install what is needed, and run the server with the example rules
	$(PYTHON) server

test: ## install what is needed, and run all tests
	$(PYTHON) tests

lint: ## install what is needed, and check style and types
	$(PYTHON) -c "import sys; sys.path.insert(0, 'server'); import install; install.install('lint')"
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format:
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

protos: ## generate server/penstock/_proto from protos/
	$(BIN)/python -m grpc_tools.protoc -I protos --python_out=server --pyi_out=server protos/penstock/_proto/*.proto

docs: ## write the tables in docs/ that are made from the code
	$(BIN)/python -m tests.support.doc_tables

bench: ## measure; ARGS="wire" measures one part, ARGS="--target HOST:PORT" any server (needs h2load: apt-get install nghttp2-client)
	$(BIN)/python -m tests.benchmarks $(ARGS)
