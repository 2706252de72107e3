package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// impersonationRights are the rights of the user "account", each as "VERB GROUP/RESOURCE/SUBRESOURCE NAMESPACE/NAME LABELS".
type impersonationRights []string

// Authorize implements [authorizer.Authorizer]. All other users may do everything.
func (rights impersonationRights) Authorize(
	_ context.Context, a authorizer.Attributes,
) (authorizer.Decision, string, error) {
	selector, err := a.GetLabelSelector()
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	right := fmt.Sprintf("%s %s/%s/%s %s/%s %s", a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(),
		a.GetNamespace(), a.GetName(), labels.NewSelector().Add(selector...))
	if a.GetUser().GetName() != "account" || slices.Contains(rights, right) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// impersonate sends a request of a user with these headers through kube-apiserver's own filter. It returns the user as whom
// the request passes the filter, or nil if the filter refuses the request.
func (rights impersonationRights) impersonate(
	ctx context.Context, sender string, h http.Header, info *request.RequestInfo,
) (as user.Info) {
	filter := impersonation.WithConstrainedImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		as, _ = request.UserFrom(r.Context())
	}), rights, scheme.Codecs)
	ctx = request.WithRequestInfo(request.WithUser(ctx, &user.DefaultInfo{Name: sender}), info)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.Header = h.Clone()
	filter.ServeHTTP(httptest.NewRecorder(), r)
	return as
}

// review answers a review that the account sends, as kube-apiserver does.
func (rights impersonationRights) review(r *http.Request) (*http.Response, error) {
	spec, err := proxytest.ReviewAsked(r)
	if err != nil {
		return nil, err
	}
	impersonated := rights.impersonate(r.Context(), "account", r.Header, &request.RequestInfo{
		IsResourceRequest: true, Verb: "create",
		APIGroup: "authorization.k8s.io", APIVersion: "v1", Resource: "selfsubjectaccessreviews",
	})
	if impersonated == nil {
		return proxytest.JSONResponse(r, http.StatusForbidden, ""), nil
	}
	asked := spec.ResourceAttributes
	var selector labels.Requirements
	if asked.LabelSelector != nil {
		if selector, err = labels.ParseToRequirements(asked.LabelSelector.RawSelector); err != nil {
			return nil, err
		}
	}
	decision, _, err := rights.Authorize(r.Context(), authorizer.AttributesRecord{
		User: impersonated, ResourceRequest: true,
		Verb: asked.Verb, APIGroup: asked.Group, Resource: asked.Resource, Subresource: asked.Subresource,
		Namespace: asked.Namespace, Name: asked.Name, LabelSelectorRequirements: selector,
	})
	if err != nil {
		return nil, err
	}
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authorizer.DecisionAllow}
	return proxytest.AnswerReview(r, status)
}

// TestImpersonation: Review says yes to a list as another user only if kube-apiserver's own filter lets the list pass, whether
// the caller or listproxy's account impersonates the user. If one of the needed rights is missing, it does not.
func TestImpersonation(t *testing.T) {
	const (
		extra = "authentication.k8s.io/userextras/example.com/key"
		// The right to impersonate for all requests.
		robot = "impersonate /serviceaccounts/ ns/robot "
		// The rights to impersonate a user for certain requests (KEP-5284).
		userForReviews = "impersonate-on:user-info:create authorization.k8s.io/selfsubjectaccessreviews/ / "
		userForList    = "impersonate-on:user-info:list apps/deployments/ team-a/ a=b"
		// The same for a service account.
		robotForSome    = "impersonate:serviceaccount authentication.k8s.io/serviceaccounts/ ns/robot "
		robotForReviews = "impersonate-on:serviceaccount:create authorization.k8s.io/selfsubjectaccessreviews/ / "
		robotForList    = "impersonate-on:serviceaccount:list apps/deployments/ team-a/ a=b"
	)
	// janesRights returns the rights to impersonate all of jane's properties.
	janesRights := func(verb, group string) impersonationRights {
		return impersonationRights{
			verb + group + "/users/ /jane ", verb + group + "/groups/ /team ", verb + group + "/groups/ /system:authenticated ",
			verb + " authentication.k8s.io/uids/ /7 ", verb + " " + extra + " /a ", verb + " " + extra + " /b ",
		}
	}
	janeForAll := janesRights("impersonate", " ")
	janeForSome := janesRights("impersonate:user-info", " authentication.k8s.io")
	jane := user.DefaultInfo{
		Name: "jane", UID: "7", Groups: []string{"team", user.AllAuthenticated},
		Extra: map[string][]string{"example.com/key": {"a", "b"}},
	}
	robotUser := user.DefaultInfo{Name: "system:serviceaccount:ns:robot"}
	robotInGroup := user.DefaultInfo{Name: robotUser.Name, Groups: []string{user.AllAuthenticated}}
	node := user.DefaultInfo{Name: "system:node:a"}
	inGroups := func(n int) user.DefaultInfo {
		return user.DefaultInfo{Name: "jane", Groups: slices.Repeat([]string{"team"}, n)}
	}
	plus := func(rights impersonationRights, more ...string) impersonationRights {
		return slices.Concat(rights, more)
	}
	type impersonation struct {
		user         user.DefaultInfo
		rights       impersonationRights // of the impersonator
		wantUpstream bool                // kube-apiserver's filter lets the list pass
		wantUnknown  bool                // Review says no nevertheless
	}
	tests := map[string]impersonation{
		"jane, all requests": {user: jane, rights: janeForAll, wantUpstream: true},
		"jane, this list":    {user: jane, rights: plus(janeForSome, userForReviews, userForList), wantUpstream: true},
		"jane, reviews only": {user: jane, rights: plus(janeForSome, userForReviews)},
		"jane, lists in another namespace": {
			user: jane, rights: plus(janeForSome, userForReviews, strings.Replace(userForList, "team-a", "team-b", 1)),
		},
		"jane, lists with another selector": {
			user: jane, rights: plus(janeForSome, userForReviews, strings.Replace(userForList, "a=b", "a=c", 1)),
		},
		"jane, watches": {
			user: jane, rights: plus(janeForSome, userForReviews, strings.Replace(userForList, "list", "watch", 1)),
		},
		"this list, but not jane": {user: jane, rights: plus(nil, userForReviews, userForList)},
		"service account":         {user: robotUser, rights: plus(nil, robot), wantUpstream: true},
		"service account by the rights for users": {
			user: robotUser, rights: plus(nil, "impersonate /users/ /"+robotUser.Name+" ", userForReviews, userForList),
		},
		"service account, this list": {
			user: robotUser, rights: plus(nil, robotForSome, robotForReviews, robotForList),
			wantUpstream: true, wantUnknown: true,
		},
		"service account for reviews, users for this list": {
			user: robotUser, rights: plus(nil, robotForSome, robotForReviews, userForList),
		},
		"service account without its group": {user: robotInGroup, rights: plus(nil, robot, userForList)},
		"service account with its group": {
			user: robotInGroup, rights: plus(nil, robot, janeForAll[2]), wantUpstream: true,
		},
		"node by the rights for users": {
			user: node,
			rights: plus(
				nil, userForReviews, userForList, "impersonate:user-info authentication.k8s.io/users/ /system:node:a ",
			),
		},
		"many groups":     {user: inGroups(maxImpersonationQuestions - 1), rights: janeForAll, wantUpstream: true},
		"too many groups": {user: inGroups(maxImpersonationQuestions), rights: janeForAll, wantUpstream: true, wantUnknown: true},
	}
	for i, right := range janeForAll {
		others := slices.Delete(slices.Clone(janeForAll), i, i+1)
		tests["jane, without "+right] = impersonation{user: jane, rights: others}
		tests["jane, reviews only, without "+right] = impersonation{
			user: jane, rights: slices.Concat(janeForSome, plus(others, userForReviews)),
		}
	}
	list := &Attributes{
		Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "team-a",
		LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a=b"},
	}
	info := &request.RequestInfo{
		IsResourceRequest: true, Verb: "list", APIGroup: "apps", APIVersion: "v1", Resource: "deployments",
		Namespace: "team-a", LabelSelector: "a=b",
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			callers, h := NewAuthenticator(nil), http.Header{}
			verified := callers.IdentityOf(&tt.user)
			verified.Present(h)
			expect.Same(t, tt.wantUpstream, tt.rights.impersonate(t.Context(), "account", h, info) != nil)
			for _, who := range []struct {
				identity    Identity
				wantRefused Decision // or No
			}{
				{identity: verified, wantRefused: NotPermitted},
				{identity: proxytest.IdentifyAs(callers, h), wantRefused: No},
			} {
				r := newAuthorizer(t, tt.rights.review, ReviewConfig{TTL: time.Minute})
				right, err := r.Review(t.Context(), known(who.identity), list)
				expect.NoError(t, err)
				wantYes := tt.wantUpstream && !tt.wantUnknown
				got := right.Decision()
				if (got == Yes) != wantYes || got != Yes && got != No && got != who.wantRefused {
					t.Errorf("got decision %d, want a yes: %t", got, wantYes)
				}
				expect.Same(t, wantYes, r.ValidFor(&right, time.Now()) > 0)
				if remembered, _ := r.Remembered(who.identity, list); r.ValidFor(&remembered, time.Now()) > 0 {
					t.Error("got a valid right from memory, without the answers on which it depends")
				}
			}
		})
	}
}

// TestImpersonationEnds: a right is valid for no longer than the right to impersonate. If that cannot be reviewed, Review returns
// an error.
func TestImpersonationEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jane, away := proxytest.Jane(NewAuthenticator(nil)), false
		r := newAuthorizer(t, func(r *http.Request) (*http.Response, error) {
			if r.Header["Impersonate-User"] == nil && away {
				return nil, errors.New("away")
			}
			return answerYes(r)
		}, ReviewConfig{TTL: time.Minute})
		ask := func(namespace string) *Right {
			asked := listPods()
			asked.Namespace = namespace
			right, err := r.Review(t.Context(), known(jane), asked)
			expect.Same(t, []bool{away, away}, []bool{err != nil, right.Decision() != Yes})
			return &right
		}
		ask("a")
		time.Sleep(40 * time.Second)
		expect.Same(t, 20*time.Second, r.ValidFor(ask("b"), time.Now()))
		time.Sleep(20 * time.Second)
		away = true
		ask("b")
	})
}
