package wire

import (
	"slices"
	"testing"
)

// TestFieldValues: Values reads fields from JSON that an API server accepts, even if Kubernetes itself writes other JSON.
// (TestBuiltinFields has the JSON of real types.)
func TestFieldValues(t *testing.T) {
	paths := NewFieldPaths([]Field{
		{Name: "spec.hostNetwork", JSON: []string{"spec", "hostNetwork"}, Zero: "false"},
		{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Indexed: true},
		{Name: "spec.host", JSON: []string{"spec", "nodeName"}},
		{Name: "status.phase", JSON: []string{"status", "phase"}},
	})
	if !paths.HasIndexed() || paths.Find("spec.nodeName") != 0 || paths.Find("spec.unknown") >= 0 {
		t.Fatalf("the indexed field is not the first, or an unknown field is found: %v", paths.fields)
	}
	for name, tt := range map[string]struct {
		object    string
		want      []string // nodeName, hostNetwork, host, phase
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
		got, err := jsonEncoding{}.Values(paths, []byte(tt.object))
		if (err != nil) != tt.wantError || err == nil && !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v; want %q, an error %t", name, got, err, tt.want, tt.wantError)
		}
	}
}
