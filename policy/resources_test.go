package policy

import "testing"

func TestCachedByDefault(t *testing.T) {
	for _, test := range []struct {
		group, resource string
		want            bool
	}{
		{"", "pods", true},
		{"", "secrets", false},
		{"", "events", false},
		{"events.k8s.io", "events", false},
		{"apps", "deployments", true},
		{"example.com", "secrets", true},
		{"example.com", "events", true},
		{"events.k8s.io", "secrets", true},
	} {
		if got := CachedByDefault(test.group, test.resource); got != test.want {
			t.Errorf("CachedByDefault(%q, %q) = %t", test.group, test.resource, got)
		}
	}
}
