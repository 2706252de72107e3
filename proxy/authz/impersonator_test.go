package authz

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestImpersonatorReview goes through what listproxy's own account may hold: the rules of
// kube-apiserver's filter. All that is asked is in the review.
func TestImpersonatorReview(t *testing.T) {
	jane := &user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"team", user.AllAuthenticated}, Extra: map[string][]string{"example.com/key": {"a", "b"}}}
	robot := &user.DefaultInfo{Name: "system:serviceaccount:ns:robot", Groups: []string{user.AllAuthenticated}}
	list := Attributes{
		Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "team-a", Name: "web",
		LabelSelector: "a in (b,c),!d", FieldSelector: "metadata.name=web",
	}
	const (
		onList   = "impersonate-on:user-info:list apps/v1 deployments/ team-a/web a in (b,c),!d metadata.name=web"
		asJane   = "impersonate /v1 users/ /jane  "
		asRobot  = "impersonate /v1 serviceaccounts/ ns/robot  "
		asOthers = "impersonate /v1 users/ /robot  "
	)
	for name, tt := range map[string]struct {
		user *user.DefaultInfo
		may  []string
		want bool
	}{
		"nothing":                {jane, nil, false},
		"her name":               {jane, []string{asJane}, true},
		"another name":           {jane, []string{asOthers}, false},
		"to list as others":      {jane, []string{onList}, true},
		"a service account":      {robot, []string{asRobot}, true},
		"is no user":             {robot, []string{asOthers}, false},
		"whom a token speaks of": {nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			rights := newAuthorizer(t, func(r *http.Request) (*http.Response, error) {
				spec, err := proxytest.ReviewAsked(r)
				if err != nil {
					return nil, err
				}
				asked, labels, fields := spec.ResourceAttributes, "", ""
				if asked.LabelSelector != nil {
					labels, fields = asked.LabelSelector.RawSelector, asked.FieldSelector.RawSelector
				}
				question := fmt.Sprintf("%s %s/%s %s/%s %s/%s %s %s",
					asked.Verb, asked.Group, asked.Version, asked.Resource, asked.Subresource, asked.Namespace, asked.Name, labels, fields)
				return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: slices.Contains(tt.may, question)})
			}, Config{TTL: time.Minute}, proxytest.DiscardLog())
			i := &Impersonator{rights}
			got, err := i.Review(t.Context(), Caller{Identity: authn.As(tt.user)}, list)
			if allowed := got == nil || got.Decision() == Yes; err != nil || allowed != tt.want || (got == nil) != (tt.user == nil) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	rights := newAuthorizer(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("away") }, Config{}, proxytest.DiscardLog())
	if right, err := (&Impersonator{rights}).Review(t.Context(), Caller{Identity: authn.As(jane)}, list); err == nil {
		t.Errorf("nobody could be asked: %v, %v", right, err)
	}
}
