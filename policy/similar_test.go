package policy

import "testing"

func TestSimilar(t *testing.T) {
	names := []string{"pods", "podtemplates", "services", "networkpolicies", "ingresses", "endpoints", "nodes", "deployments", "csinodes"}
	for name, want := range map[string]string{
		"pod": "pods", "Pod": "pods", "PODS": "pods", "networkpolicy": "networkpolicies", "ingress": "ingresses", "node": "nodes",
		"deploymnets": "deployments", "deploymnet": "deployments", "deployment": "deployments", "servces": "services", "ndoes": "nodes",
		"widgets": "", "p": "", "po": "pods", "": "", "secrets": "",
	} {
		if got := Similar(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
