package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
)

const source = "../../policy"

// comments are what package policy says of its types: of a field of Rule by its name, and of a
// constant by its value, each under the type's name.
type comments struct {
	fields map[string]field
	words  map[string][]word // by type, in the order of declaration
	types  map[string]string
}

type field struct{ kind, comment string }

type word struct{ value, comment string }

// readComments reads the package's source.
func readComments(t *testing.T) comments {
	t.Helper()
	c := comments{fields: map[string]field{}, words: map[string][]word{}, types: map[string]string{}}
	for _, name := range []string{"config.go", "media/media.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), source+"/"+name, nil, parser.ParseComments)
		expect.NoError(t, err)
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					c.types[spec.Name.Name] = sentence(spec.Name.Name, general.Doc)
					if s, ok := spec.Type.(*ast.StructType); ok && spec.Name.Name == "Rule" {
						for _, f := range s.Fields.List {
							name := f.Names[0].Name
							c.fields[name] = field{kindOf(f.Type), sentence(name, f.Doc)}
						}
					}
				case *ast.ValueSpec:
					c.constant(spec)
				}
			}
		}
	}
	return c
}

func (c comments) constant(spec *ast.ValueSpec) {
	kind, ok := spec.Type.(*ast.Ident)
	if !ok || len(spec.Values) != 1 {
		return
	}
	literal, ok := spec.Values[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return
	}
	c.words[kind.Name] = append(c.words[kind.Name], word{value, sentence(spec.Names[0].Name, spec.Doc)})
}

// kindOf is the name of a type, without what it is in.
func kindOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.ArrayType:
		return kindOf(e.Elt)
	}
	return ""
}

// sentence is a comment for readers of the page: without the name that it begins with, and without
// what in brackets speaks of Go.
func sentence(name string, doc *ast.CommentGroup) string {
	text := strings.Join(strings.Fields(doc.Text()), " ")
	for _, head := range []string{name + ": ", name + " is ", name + " are ", name + " bounds ", name + " says ", name + " "} {
		if rest, ok := strings.CutPrefix(text, head); ok {
			if head == name+" bounds " {
				rest = "bounds " + rest
			}
			text = rest
			break
		}
	}
	text = goOnly().ReplaceAllString(text, "")
	return strings.ReplaceAll(text, "|", `\|`)
}

// goOnly finds what a comment says of Go: names of constants, and zero values that stand for what
// the file leaves out.
func goOnly() *regexp.Regexp {
	return regexp.MustCompile(` \(reason\.\w+\)|[;:] (?:0|nil) is the process's default(?:, 0 for ever)?`)
}

// refusal is what the parser says about a value of a field, after what it calls it.
func refusal(t *testing.T, where, name, value string) string {
	t.Helper()
	text := "apiVersion: " + policy.ConfigAPIVersion + "\nkind: " + policy.ConfigKind + "\n"
	switch where {
	case "defaults":
		text += fmt.Sprintf("defaults: {%s: %s}\n", name, value)
	default:
		fixed := map[string]string{"group": "apps", "resource": "deployments", "version": "v1"}
		delete(fixed, name)
		rule := []string{name + ": " + value}
		for _, key := range []string{"group", "resource", "version"} {
			if fixed[key] != "" {
				rule = append(rule, key+": "+fixed[key])
			}
		}
		text += fmt.Sprintf("resources: [{%s}]\n", strings.Join(rule, ", "))
	}
	_, err := policy.ParseConfig("p", []byte(text))
	if err == nil {
		return ""
	}
	for line := range strings.Lines(err.Error()) {
		if _, rest, ok := strings.Cut(line, name+": "); ok {
			return strings.TrimSpace(rest)
		}
		if _, rest, ok := strings.Cut(line, name+"[0]: "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// fieldsOf are the names that the parser knows at a place.
func fieldsOf(t *testing.T, text string) []string {
	t.Helper()
	_, err := policy.ParseConfig("p", []byte(text))
	if err == nil {
		t.Fatalf("accepted: %s", text)
	}
	m := regexp.MustCompile(`unknown field "unknown": there are (.*)`).FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("the parser does not say which fields there are: %v", err)
	}
	return strings.Split(m[1], ", ")
}

// takes is what a field takes at a place, in the parser's own words.
func takes(t *testing.T, where, name string) string {
	t.Helper()
	wrong := `"?"`
	if name == "representations" || name == "newestAsAny" {
		wrong = `["?"]`
	}
	says := refusal(t, where, name, wrong)
	_, what, ok := strings.Cut(says, ": ")
	if !ok {
		t.Fatalf("%s: the parser does not say what to write: %q", name, says)
	}
	what = strings.TrimPrefix(strings.TrimPrefix(what, "write "), "choose ")
	// What is out of bounds has words of its own.
	outside := regexp.MustCompile(`(?:out of bounds|too short|less than).*: write (.*)`)
	for _, beyond := range []string{"1000h", "1ms", "1"} {
		if m := outside.FindStringSubmatch(refusal(t, where, name, beyond)); m != nil && !strings.Contains(what, m[1]) {
			what += "; " + m[1]
		}
	}
	return strings.ReplaceAll(what, "|", `\|`)
}

// reference makes the section.
func reference(t *testing.T) string {
	t.Helper()
	c := readComments(t)
	head := "apiVersion: " + policy.ConfigAPIVersion + "\nkind: " + policy.ConfigKind + "\n"
	inRules := fieldsOf(t, head+"resources: [{unknown: x}]\n")
	inDefaults := fieldsOf(t, head+"defaults: {unknown: x}\n")
	builtIn := policy.DefaultConfig().Defaults()
	defaults := map[string]string{
		"cache": code(string(builtIn.Cache)), "representations": "all", "historyWindow": "`--history-window`",
		"maxBytes": "none", "idleTimeout": "`--idle-timeout`", "limitAtZero": code(string(builtIn.LimitAtZero)),
		"consistentLists": "`--consistent-lists`",
		"watches":         "`--watches`",
		"newestAsAny":     "nobody",
		"sameForEveryone": code(strconv.FormatBool(builtIn.SameForEveryone)),
	}
	if !slices.Equal(builtIn.Representations, media.All()) || builtIn.HistoryWindow != 0 || builtIn.MaxBytes != 0 || builtIn.IdleTimeout != nil {
		t.Errorf("the defaults are others than this test says: %+v", builtIn)
	}

	var b strings.Builder
	b.WriteString("| field | in | takes | default | |\n|---|---|---|---|---|\n")
	var kinds []string
	for _, name := range inRules {
		where, what := "rules", takes(t, "resources", name)
		if slices.Contains(inDefaults, name) {
			where += ", `defaults`"
			if there := takes(t, "defaults", name); there != what {
				what += "; in `defaults` " + there
			}
		}
		f := c.fields[strings.ToUpper(name[:1])+name[1:]]
		if f.comment == "" {
			f.comment = c.types[f.kind]
		}
		if len(c.words[f.kind]) > 0 && !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
		meaning := f.comment
		if meaning == "" {
			meaning = "which resources the rule is for"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", code(name), where, what, defaults[name], meaning)
	}
	b.WriteString("\n| word | |\n|---|---|\n")
	for _, kind := range kinds {
		for _, w := range c.words[kind] {
			fmt.Fprintf(&b, "| %s | %s |\n", code(w.value), w.comment)
		}
	}
	return b.String()
}

func code(text string) string { return "`" + text + "`" }
