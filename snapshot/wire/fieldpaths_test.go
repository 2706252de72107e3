package wire

import (
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestFieldValues: ReadValues reads each field from its path in JSON. It returns the field's Zero if there is nothing at the
// path, and an error if there is no single value. (TestBuiltinFields has objects of real types.)
func TestFieldValues(t *testing.T) {
	paths := NewFieldPaths([]Field{
		{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Indexed: true},
		{Name: "spec.hostNetwork", JSON: []string{"spec", "hostNetwork"}, Zero: "false"},
		{Name: "spec.host", JSON: []string{"spec", "nodeName"}},
		{Name: "status.phase", JSON: []string{"status", "phase"}},
	})
	expect.Same(t, true, paths.HasIndexed())
	expect.Same(t, 0, paths.Find("spec.nodeName"))
	expect.Same(t, -1, paths.Find("spec.unknown"))
	for name, tt := range map[string]struct {
		object    string
		want      []string // the values of nodeName, hostNetwork, host (another name of nodeName) and phase
		wantError bool
	}{
		"all fields": {
			object: `{"spec":{"x":{"nodeName":"no"},"hostNetwork":true,"nodeName":"n\u0031"},"status":{"phase":"Running"}}`,
			want:   []string{"n1", "true", "n1", "Running"},
		},
		"null on the path and as a value": {
			object: `{"spec":null,"status":{"phase":null}}`,
			want:   []string{"", "false", "", ""},
		},
		"a string and an array on the path": {
			object: `{"spec":"x","status":[{"phase":"a"}]}`,
			want:   []string{"", "false", "", ""},
		},
		"a number as a value": {
			object: `{"spec":{"nodeName":-12}}`,
			want:   []string{"-12", "false", "-12", ""},
		},
		"an object as a value": {object: `{"spec":{"nodeName":{}}}`, wantError: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := paths.ReadValues(jsonEncoding{}, []byte(tt.object))
			if (err != nil) != tt.wantError {
				t.Fatalf("got error %v, want one: %t", err, tt.wantError)
			}
			if !tt.wantError {
				expect.Same(t, tt.want, got)
			}
		})
	}
}
