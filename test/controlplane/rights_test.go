package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/listproxy/listproxy/test/expect"
)

// TestImpersonationManifest: what docs/rbac-impersonation.yaml gives is for names only, none of which
// anybody has before they are replaced. Without these it is what tests give.
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
			t.Errorf("%v of %v", rule.ResourceNames, rule.Resources)
		}
		role.Rules[i].ResourceNames = nil
	}
	expect.Same(t, Impersonation(), role.Rules)
}

// TestGrant: each sort of rights holds for each sort of subject, and no longer once it is revoked.
func TestGrant(t *testing.T) {
	long(t)
	pods := []rbacv1.PolicyRule{Rule("list,get", "", "pods")}
	for name, tt := range map[string]struct {
		grant Grant
		user  string
		group string
	}{
		"a user in a namespace": {Grant{To: []string{"jo"}, Namespace: TeamB, Rules: pods}, "jo", ""},
		"an account everywhere": {Grant{To: []string{TeamA + "/jo"}, Rules: pods}, "system:serviceaccount:" + TeamA + ":jo", ""},
		"a group, by a role":    {Grant{To: []string{"group:jos"}, Namespace: TeamB, Role: "cluster-admin"}, "somebody", "jos"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			revoke, err := shared.Grant(ctx, tt.grant)
			expect.NoError(t, err)
			await := func(want bool) {
				t.Helper()
				if err := shared.apiserver.await(ctx, "rights", func(ctx context.Context) error {
					answer, err := shared.request(ctx, Admin, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
						&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
							User: tt.user, Groups: []string{tt.group},
							ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: TeamB},
						}})
					if err != nil {
						return err
					}
					var review authorizationv1.SubjectAccessReview
					if err := json.Unmarshal(answer, &review); err != nil || review.Status.Allowed != want {
						return fmt.Errorf("%w: %s", err, answer)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			await(true)
			expect.NoError(t, revoke(ctx))
			await(false)
		})
	}
}
