package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/reference"
)

// TestReference: docs/reference.md has a row for each field of a policy file. Its words are those of the field's comment in
// file.go: "Kind is `Policy`." becomes the row "kind | `Policy`.".
func TestReference(t *testing.T) {
	// Find the structs in file.go.
	file, err := parser.ParseFile(token.NewFileSet(), "file.go", nil, parser.ParseComments)
	expect.NoError(t, err)
	structs := map[string]*ast.StructType{} // by name
	ast.Inspect(file, func(n ast.Node) bool {
		spec, isType := n.(*ast.TypeSpec)
		if !isType {
			return true
		}
		if s, isStruct := spec.Type.(*ast.StructType); isStruct {
			structs[spec.Name.Name] = s
		}
		return true
	})
	// Make a row of each field.
	table := reference.Head("field", "")
	for _, part := range []struct {
		structName string
		prefix     string // of the fields' names in the table
	}{
		{structName: "File", prefix: ""},
		{structName: "writtenRule", prefix: "resources[]."},
		{structName: "settings", prefix: "…."},
	} {
		for _, field := range structs[part.structName].Fields.List {
			if field.Tag == nil {
				continue // an embedded struct
			}
			name := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
			_, meaning, ok := strings.Cut(strings.TrimSpace(field.Doc.Text()), " is ")
			if !ok {
				t.Errorf("the comment of %s does not begin with its name and \"is\"", name)
			}
			table += reference.Row("`"+part.prefix+name+"`", meaning)
		}
	}
	reference.Check(t, "../docs/reference.md", "policy", table)
}
