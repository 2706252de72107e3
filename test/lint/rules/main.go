// Command rules finds what is hard to read and golangci-lint has no rule for, in comments, assignments, names and
// literals. make lint runs it: go run ./rules FOLDER, where FOLDER is a Git repository.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"log"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/listproxy/listproxy"

var (
	// badNames are prepositions and forms of verbs. As the name of a variable or function, they do not say what it is.
	badNames     = strings.Fields("of is are was were had on by as via with without into about upon than beyond")
	nameAndColon = regexp.MustCompile(`^[A-Za-z_][\w.]*: `)
	// testName matches comments that may begin with a name and a colon. A comment such as "TestX: callers are refused" says
	// what the test shows.
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)`)
)

func main() {
	log.SetFlags(0)
	if err := os.Chdir(os.Args[1]); err != nil {
		log.Fatalln("rules:", err)
	}
	names, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go").Output()
	if err != nil {
		log.Fatalln("rules:", err)
	}
	findings, err := check(strings.Fields(string(names)))
	if err != nil {
		log.Fatalln("rules:", err)
	}
	for _, finding := range findings {
		fmt.Println(finding)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// checker collects findings. Some rules need the types of expressions. It knows only the types that this repository defines.
type checker struct {
	positions *token.FileSet
	files     map[string][]*ast.File    // by import path
	packages  map[string]*types.Package // by import path
	info      types.Info
	findings  []string
}

// check returns the findings in the files with these names, in order. It skips test data.
func check(names []string) ([]string, error) {
	c := &checker{
		positions: token.NewFileSet(),
		files:     map[string][]*ast.File{},
		packages:  map[string]*types.Package{},
		info:      types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}},
	}
	for _, name := range names {
		if strings.Contains(name, "testdata/") {
			continue
		}
		file, err := parser.ParseFile(c.positions, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		importPath := path.Join(module, path.Dir(name))
		if !strings.HasSuffix(name, "_test.go") {
			c.files[importPath] = append(c.files[importPath], file)
		}
		// The package with its tests counts as a second package. If it were one package, there could be a cycle of imports: a
		// test may import a package that imports the tested one.
		withTests := importPath + " " + file.Name.Name
		c.files[withTests] = append(c.files[withTests], file)
		ast.Inspect(file, c.checkNode)
	}
	for importPath := range c.files {
		_, _ = c.Import(importPath) // for c.info; errors about types of other modules, which are unknown, do not matter
	}
	for name := range c.info.Defs {
		c.checkName(name)
	}
	for expression := range c.info.Types {
		if literal, ok := expression.(*ast.CompositeLit); ok {
			c.checkLiteral(literal)
		}
	}
	slices.Sort(c.findings)
	return c.findings, nil
}

// Import returns a package of this repository, for types.Importer.
func (c *checker) Import(importPath string) (*types.Package, error) {
	files, ok := c.files[importPath]
	if !ok {
		return nil, errors.New("not in this repository")
	}
	if c.packages[importPath] == nil {
		config := types.Config{Importer: c, Error: func(error) {}}
		c.packages[importPath], _ = config.Check(importPath, c.positions, files, &c.info)
	}
	return c.packages[importPath], nil
}

func (c *checker) checkNode(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.FuncDecl:
		c.checkComment(node.Doc)
	case *ast.GenDecl:
		c.checkComment(node.Doc)
	case *ast.TypeSpec:
		c.checkComment(node.Doc)
	case *ast.Field:
		c.checkComment(node.Doc)
	case *ast.ValueSpec:
		c.checkComment(node.Doc)
		c.checkAssignment(node, len(node.Names), len(node.Values))
	case *ast.AssignStmt:
		c.checkAssignment(node, len(node.Lhs), len(node.Rhs))
	}
	return true
}

func (c *checker) checkComment(comment *ast.CommentGroup) {
	if begin := nameAndColon.FindString(comment.Text()); begin != "" && !testName.MatchString(begin) {
		c.report(comment, "a comment begins with %q; write a sentence, such as \"X returns ...\"", begin)
	}
}

func (c *checker) checkAssignment(node ast.Node, targets, values int) {
	if targets > 2 && values > 1 {
		c.report(node, "%d values are assigned at once; write them one by one, or two that belong together", targets)
	}
}

func (c *checker) checkName(name *ast.Ident) {
	if slices.Contains(badNames, strings.ToLower(name.Name)) {
		c.report(name, "the name %s does not say what it is; write a noun, or a verb for a function", name)
	}
}

func (c *checker) checkLiteral(literal *ast.CompositeLit) {
	if len(literal.Elts) == 0 {
		return
	}
	literalType := c.info.TypeOf(literal).Underlying()
	if pointer, ok := literalType.(*types.Pointer); ok { // an element of []*T
		literalType = pointer.Elem().Underlying()
	}
	_, keyed := literal.Elts[0].(*ast.KeyValueExpr)
	if fields, ok := literalType.(*types.Struct); ok && fields.NumFields() > 2 && !keyed {
		c.report(literal, "a literal has %d fields without their names; write name: value", fields.NumFields())
	}
}

func (c *checker) report(node ast.Node, format string, args ...any) {
	position := c.positions.Position(node.Pos())
	text := fmt.Sprintf(format, args...)
	c.findings = append(c.findings, fmt.Sprintf("%s:%d: %s", position.Filename, position.Line, text))
}
