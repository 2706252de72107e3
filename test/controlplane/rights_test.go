package controlplane

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/listproxy/listproxy/test/expect"
)

// TestImpersonationManifest: docs/rbac-impersonation.yaml allows impersonation of named users only, with names that an operator
// must replace. Without the names, its rules are those of Impersonation.
func TestImpersonationManifest(t *testing.T) {
	text, err := os.ReadFile("../../docs/rbac-impersonation.yaml")
	expect.NoError(t, err)
	var role rbacv1.ClusterRole
	expect.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 1024).Decode(&role))
	for i, rule := range role.Rules {
		named := slices.ContainsFunc(rule.ResourceNames, func(name string) bool { return strings.HasPrefix(name, "REPLACE-WITH-") })
		for _, name := range rule.ResourceNames {
			named = named && (strings.HasPrefix(name, "REPLACE-WITH-") || name == "system:authenticated")
		}
		if !named && !strings.HasPrefix(rule.Resources[0], "userextras/") {
			t.Errorf("names %v of %v, want REPLACE-WITH-… or system:authenticated", rule.ResourceNames, rule.Resources)
		}
		role.Rules[i].ResourceNames = nil
	}
	expect.Same(t, Impersonation(), role.Rules)
}
