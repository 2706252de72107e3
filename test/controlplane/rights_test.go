package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/expect"
)

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
