package wire

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// somePodFields are some of a pod's, the indexed one not first.
var somePodFields = []Field{
	{Name: "spec.hostNetwork", JSON: []string{"spec", "hostNetwork"}, Protobuf: []protowire.Number{2, 11}, Zero: "false"},
	{Name: "spec.nodeName", Indexed: true, JSON: []string{"spec", "nodeName"}, Protobuf: []protowire.Number{2, 10}},
	{Name: "spec.host", JSON: []string{"spec", "nodeName"}, Protobuf: []protowire.Number{2, 10}},
	{Name: "status.phase", JSON: []string{"status", "phase"}, Protobuf: []protowire.Number{3, 1}},
}

// TestFieldValues: what JSON may have at a path, and not only what Kubernetes writes there. (TestBuiltinFields has
// the values of objects.)
func TestFieldValues(t *testing.T) {
	paths := NewFieldPaths(somePodFields)
	if !paths.HasIndexed() || paths.Find("spec.nodeName") != 0 || paths.Find("spec.unknown") >= 0 {
		t.Fatalf("fields in the order %v", paths.fields)
	}
	for _, tt := range []struct {
		name, object string
		want         []string
		bad          bool
	}{
		{
			name:   "all",
			object: `{"spec":{"x":{"nodeName":"no"},"hostNetwork":true,"nodeName":"n\u0031"},"status":{"phase":"Running"}}`,
			want:   []string{"n1", "true", "n1", "Running"},
		},
		{name: "null", object: `{"spec":null,"status":{"phase":null}}`, want: []string{"", "false", "", ""}},
		{name: "not on the way", object: `{"spec":"x","status":[{"phase":"a"}]}`, want: []string{"", "false", "", ""}},
		{name: "numbers as they are", object: `{"spec":{"nodeName":-12}}`, want: []string{"-12", "false", "-12", ""}},
		{name: "no single value", object: `{"spec":{"nodeName":{}}}`, bad: true},
	} {
		got, err := jsonEncoding{}.Values(paths, []byte(tt.object))
		if (err != nil) != tt.bad || !tt.bad && !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}
