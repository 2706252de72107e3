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

// TestImpersonationManifest: docs/rbac-impersonation.yaml has the rules of Impersonation, each only for placeholders that an
// operator must replace, and for system:authenticated. Only rules for extras have no names.
func TestImpersonationManifest(t *testing.T) {
	text, err := os.ReadFile("../../docs/rbac-impersonation.yaml")
	expect.NoError(t, err)
	var role rbacv1.ClusterRole
	expect.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 1024).Decode(&role))
	isPlaceholder := func(name string) bool { return strings.HasPrefix(name, "REPLACE-WITH-") }
	isOther := func(name string) bool { return !isPlaceholder(name) && name != "system:authenticated" }
	for i, rule := range role.Rules {
		isExtra := strings.HasPrefix(rule.Resources[0], "userextras/")
		onlyPlaceholders := slices.ContainsFunc(rule.ResourceNames, isPlaceholder) && !slices.ContainsFunc(rule.ResourceNames, isOther)
		if !isExtra && !onlyPlaceholders {
			t.Errorf("the rule for %v allows the names %q, want REPLACE-WITH-… or system:authenticated", rule.Resources, rule.ResourceNames)
		}
		role.Rules[i].ResourceNames = nil
	}
	expect.Same(t, Impersonation(), role.Rules)
}
