package harness

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// root is the module's directory.
const root = "../.."

// goFiles returns the names of the Go files in a directory and below: tests or the others.
func goFiles(t *testing.T, dir string, tests bool) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" && strings.HasSuffix(path, "_test.go") == tests {
			names = append(names, path)
		}
		return err
	})
	expect.NoError(t, err)
	return names
}

// parse returns what goFiles names.
func parse(t *testing.T, dir string, tests bool) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, path := range goFiles(t, dir, tests) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		expect.NoError(t, err)
		files[path] = file
	}
	return files
}

// Whatever the admin port comes to answer, a process is asked for it before it ends.
func TestAdminPathsAreKnown(t *testing.T) {
	found := 0
	for _, dir := range []string{"proxy", "cmd/listproxy", "telemetry"} {
		for name, file := range parse(t, dir, false) {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 2 {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || method.Sel.Name != "Handle" && method.Sel.Name != "HandleFunc" {
					return true
				}
				if first, ok := call.Args[0].(*ast.Ident); ok && first.Name == "ctx" {
					return true // a handler of log records
				}
				found++
				literal, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					t.Errorf("%s: a path that is not written as a string", name)
					return true
				}
				pattern, err := strconv.Unquote(literal.Value)
				expect.NoError(t, err)
				path := strings.TrimSuffix(pattern[strings.LastIndexByte(pattern, ' ')+1:], "{$}")
				if !slices.Contains(adminPaths, path) {
					t.Errorf("%s: %s is missing in adminPaths", name, path)
				}
				return true
			})
		}
	}
	if found == 0 {
		t.Error("no paths were found at all")
	}
}

// Every package whose tests run listproxy has its TestMain run by Main, which asks for the verdict.
func TestEveryMainIsTheHarness(t *testing.T) {
	runs, asks := map[string]bool{}, map[string]bool{}
	for name, file := range parse(t, "test", true) {
		dir := filepath.Dir(name)
		for _, spec := range file.Imports {
			if path, _ := strconv.Unquote(spec.Path.Value); strings.HasSuffix(path, "/test/harness") {
				runs[dir] = true
			}
		}
		for _, decl := range file.Decls {
			if main, ok := decl.(*ast.FuncDecl); ok && main.Name.Name == "TestMain" {
				asks[dir] = isHarnessMain(main)
			}
		}
	}
	if len(runs) < 5 {
		t.Errorf("only these packages run it: %v", runs)
	}
	for dir := range runs {
		if !asks[dir] {
			t.Errorf("%s has no TestMain that is harness.Main alone", dir)
		}
	}
}

// isHarnessMain says whether a function does nothing but call harness.Main.
func isHarnessMain(main *ast.FuncDecl) bool {
	if len(main.Body.List) != 1 {
		return false
	}
	statement, ok := main.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	return ok && selected(call.Fun) == "harness.Main"
}

// selected is package.Name.
func selected(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, _ := s.X.(*ast.Ident)
	if x == nil {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}

// The bounds on packages of production code, with what may exceed them for now and why. Folders of
// test/ have no more files, tests included.
const (
	linesOfPackage = 2500
	filesOfFolder  = 25
)

var largePackages = map[string]struct{ lines, files int }{
	// A collection's feed, interval and state change together, under one lock.
	"snapshot": {lines: 4050, files: filesOfFolder},
}

// TestPackagesStaySmall: a package that one person can keep in mind has one job.
func TestPackagesStaySmall(t *testing.T) {
	lines, files := map[string]int{}, map[string]int{}
	for _, dir := range []string{"cmd", "policy", "proxy", "snapshot", "telemetry"} {
		for _, name := range goFiles(t, dir, false) {
			text, err := os.ReadFile(name)
			expect.NoError(t, err)
			folder, err := filepath.Rel(root, filepath.Dir(name))
			expect.NoError(t, err)
			lines[folder] += bytes.Count(text, []byte("\n"))
			files[folder]++
		}
	}
	ofTests := map[string]int{}
	for _, name := range slices.Concat(goFiles(t, "test", false), goFiles(t, "test", true)) {
		ofTests[filepath.Dir(name)]++
	}
	for folder, n := range ofTests {
		if n > filesOfFolder {
			t.Errorf("%s has %d files, and may have %d: move what is a job of its own to its own package", folder, n, filesOfFolder)
		}
	}
	for folder := range files {
		most, ok := largePackages[folder]
		if !ok {
			most.lines, most.files = linesOfPackage, filesOfFolder
		}
		if lines[folder] > most.lines || files[folder] > most.files {
			t.Errorf("%s has %d lines in %d files, and may have %d in %d: move what is a job of its own to its own package",
				folder, lines[folder], files[folder], most.lines, most.files)
		}
		if ok && lines[folder] <= linesOfPackage && files[folder] <= filesOfFolder {
			t.Errorf("%s is no exception any more: remove it from largePackages", folder)
		}
	}
	for folder := range largePackages {
		if files[folder] == 0 {
			t.Errorf("%s is in largePackages, and is no package", folder)
		}
	}
}
