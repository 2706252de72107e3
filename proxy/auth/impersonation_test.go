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

// impersonationRights are what one account may do, as "VERB GROUP/RESOURCE/SUBRESOURCE NAMESPACE/NAME LABELS".
type impersonationRights []string

// Authorize implements [authorizer.Authorizer]: everybody but that account may do everything.
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

// impersonate sends a request of the account through kube-apiserver's own filter, and returns whose it is then, or nil
// if the filter refuses it.
func (rights impersonationRights) impersonate(
	ctx context.Context, h http.Header, info *request.RequestInfo,
) (as user.Info) {
	filter := impersonation.WithConstrainedImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		as, _ = request.UserFrom(r.Context())
	}), rights, scheme.Codecs)
	ctx = request.WithRequestInfo(request.WithUser(ctx, &user.DefaultInfo{Name: "account"}), info)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.Header = h.Clone()
	filter.ServeHTTP(httptest.NewRecorder(), r)
	return as
}

// review answers a review of the account's as kube-apiserver does.
func (rights impersonationRights) review(r *http.Request) (*http.Response, error) {
	spec, err := proxytest.ReviewAsked(r)
	if err != nil {
		return nil, err
	}
	impersonated := rights.impersonate(r.Context(), r.Header, &request.RequestInfo{
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

// TestImpersonation: a list as somebody else comes from memory only if kube-apiserver's own filter lets it pass,
// whether the caller or listproxy's account impersonates. None does with one of the needed rights missing.
func TestImpersonation(t *testing.T) {
	const (
		extra = "authentication.k8s.io/userextras/example.com/key"
		// The rights to impersonate for everything.
		robot = "impersonate /serviceaccounts/ ns/robot "
		// The rights to impersonate for certain requests (KEP-5284): users and nodes.
		userForReviews = "impersonate-on:user-info:create authorization.k8s.io/selfsubjectaccessreviews/ / "
		userForList    = "impersonate-on:user-info:list apps/deployments/ team-a/ a=b"
		// And service accounts.
		robotForSome    = "impersonate:serviceaccount authentication.k8s.io/serviceaccounts/ ns/robot "
		robotForReviews = "impersonate-on:serviceaccount:create authorization.k8s.io/selfsubjectaccessreviews/ / "
		robotForList    = "impersonate-on:serviceaccount:list apps/deployments/ team-a/ a=b"
	)
	// janesRights are the rights to state all that jane is.
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
		rights       impersonationRights // of who impersonates
		wantUpstream bool                // kube-apiserver's filter lets the list pass
		wantUnknown  bool                // listproxy does not find that out, and forwards
	}
	tests := map[string]impersonation{
		"all that is named":       {user: jane, rights: janeForAll, wantUpstream: true},
		"all of it for this list": {user: jane, rights: plus(janeForSome, userForReviews, userForList), wantUpstream: true},
		"for reviews":             {user: jane, rights: plus(janeForSome, userForReviews)},
		"for lists elsewhere": {
			user: jane, rights: plus(janeForSome, userForReviews, strings.Replace(userForList, "team-a", "team-b", 1)),
		},
		"for lists with other selectors": {
			user: jane, rights: plus(janeForSome, userForReviews, strings.Replace(userForList, "a=b", "a=c", 1)),
		},
		"to watch": {
			user: jane, rights: plus(janeForSome, userForReviews, strings.Replace(userForList, "list", "watch", 1)),
		},
		"for this list, but nobody": {user: jane, rights: plus(nil, userForReviews, userForList)},
		"a service account":         {user: robotUser, rights: plus(nil, robot), wantUpstream: true},
		"a service account as if it were jane": {
			user: robotUser, rights: plus(nil, "impersonate /users/ /"+robotUser.Name+" ", userForReviews, userForList),
		},
		"a service account for this list": {
			user: robotUser, rights: plus(nil, robotForSome, robotForReviews, robotForList),
			wantUpstream: true, wantUnknown: true,
		},
		"one for reviews, and others for this": {
			user: robotUser, rights: plus(nil, robotForSome, robotForReviews, userForList),
		},
		"one without its group": {user: robotInGroup, rights: plus(nil, robot, userForList)},
		"one with its group": {
			user: robotInGroup, rights: plus(nil, robot, janeForAll[2]), wantUpstream: true,
		},
		"a node as if it were jane": {
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
		tests["all but to "+right] = impersonation{user: jane, rights: others}
		tests["for reviews, and all but to "+right] = impersonation{
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
			verified := callers.OfUser(&tt.user)
			verified.Present(h)
			expect.Same(t, tt.wantUpstream, tt.rights.impersonate(t.Context(), h, info) != nil)
			for _, who := range []struct {
				identity    Identity
				wantRefused Decision // beside No
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
					t.Errorf("decision %d, want a yes: %t", got, wantYes)
				}
				expect.Same(t, wantYes, r.ValidFor(&right, time.Now()) > 0)
				if remembered, _ := r.Remembered(who.identity, list); r.ValidFor(&remembered, time.Now()) > 0 {
					t.Error("a remembered yes counts without those that it depends on")
				}
			}
		})
	}
}

// TestImpersonationEnds: a yes is valid for no longer than the yes to the impersonation, and where that cannot be asked
// for, there is none.
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
