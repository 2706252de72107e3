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
func (rights impersonationRights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	selector, err := a.GetLabelSelector()
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	question := fmt.Sprintf("%s %s/%s/%s %s/%s %s", a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(),
		labels.NewSelector().Add(selector...))
	if a.GetUser().GetName() != "account" || slices.Contains(rights, question) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// passes sends a request of the account through kube-apiserver's own filter, and returns whose it is then,
// nil if the filter refuses it.
func (rights impersonationRights) passes(ctx context.Context, h http.Header, info *request.RequestInfo) (as user.Info) {
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
	impersonated := rights.passes(r.Context(), r.Header, &request.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: "authorization.k8s.io", APIVersion: "v1", Resource: "selfsubjectaccessreviews",
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
		User: impersonated, Verb: asked.Verb, APIGroup: asked.Group, Resource: asked.Resource, Subresource: asked.Subresource,
		Namespace: asked.Namespace, Name: asked.Name, LabelSelectorRequirements: selector, ResourceRequest: true,
	})
	if err != nil {
		return nil, err
	}
	return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authorizer.DecisionAllow})
}

// TestImpersonation: a list as somebody else comes from memory only if kube-apiserver's own filter lets it pass,
// whether the caller or listproxy's account impersonates. None does with one of the needed rights missing.
func TestImpersonation(t *testing.T) {
	const (
		key        = "authentication.k8s.io/userextras/example.com/key"
		asRobot    = "impersonate /serviceaccounts/ ns/robot "
		reviews    = "impersonate-on:user-info:create authorization.k8s.io/selfsubjectaccessreviews/ / "
		onList     = "impersonate-on:user-info:list apps/deployments/ team-a/ a=b"
		asAnyRobot = "impersonate:serviceaccount authentication.k8s.io/serviceaccounts/ ns/robot "
		reviewsBy  = "impersonate-on:serviceaccount:create authorization.k8s.io/selfsubjectaccessreviews/ / "
		onListBy   = "impersonate-on:serviceaccount:list apps/deployments/ team-a/ a=b"
	)
	named := func(verb, core string) impersonationRights {
		return impersonationRights{
			verb + core + "/users/ /jane ", verb + core + "/groups/ /team ", verb + core + "/groups/ /system:authenticated ",
			verb + " authentication.k8s.io/uids/ /7 ", verb + " " + key + " /a ", verb + " " + key + " /b ",
		}
	}
	legacy, constrained := named("impersonate", " "), named("impersonate:user-info", " authentication.k8s.io")
	jane := user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"team", user.AllAuthenticated}, Extra: map[string][]string{"example.com/key": {"a", "b"}}}
	robot := user.DefaultInfo{Name: "system:serviceaccount:ns:robot"}
	grouped := user.DefaultInfo{Name: robot.Name, Groups: []string{user.AllAuthenticated}}
	node := user.DefaultInfo{Name: "system:node:a"}
	inGroups := func(n int) user.DefaultInfo {
		return user.DefaultInfo{Name: "jane", Groups: slices.Repeat([]string{"team"}, n)}
	}
	plus := func(rights impersonationRights, more ...string) impersonationRights {
		return slices.Concat(rights, more)
	}
	type impersonation struct {
		user    user.DefaultInfo
		may     impersonationRights
		passes  bool // at kube-apiserver
		unasked bool // which listproxy does not find out
	}
	tests := map[string]impersonation{
		"all that is named":                    {user: jane, may: legacy, passes: true},
		"all of it for this list":              {user: jane, may: plus(constrained, reviews, onList), passes: true},
		"for reviews":                          {user: jane, may: plus(constrained, reviews)},
		"for lists elsewhere":                  {user: jane, may: plus(constrained, reviews, strings.Replace(onList, "team-a", "team-b", 1))},
		"for lists with other selectors":       {user: jane, may: plus(constrained, reviews, strings.Replace(onList, "a=b", "a=c", 1))},
		"to watch":                             {user: jane, may: plus(constrained, reviews, strings.Replace(onList, "list", "watch", 1))},
		"for this list, but nobody":            {user: jane, may: plus(nil, reviews, onList)},
		"a service account":                    {user: robot, may: plus(nil, asRobot), passes: true},
		"a service account as if it were jane": {user: robot, may: plus(nil, "impersonate /users/ /"+robot.Name+" ", reviews, onList)},
		"a service account for this list":      {user: robot, may: plus(nil, asAnyRobot, reviewsBy, onListBy), passes: true, unasked: true},
		"one for reviews, and others for this": {user: robot, may: plus(nil, asAnyRobot, reviewsBy, onList)},
		"one without its group":                {user: grouped, may: plus(nil, asRobot, onList)},
		"one with its group":                   {user: grouped, may: plus(nil, asRobot, legacy[2]), passes: true},
		"a node as if it were jane": {
			user: node, may: plus(nil, reviews, onList, "impersonate:user-info authentication.k8s.io/users/ /system:node:a "),
		},
		"many groups":     {user: inGroups(maxNamed - 1), may: legacy, passes: true},
		"too many groups": {user: inGroups(maxNamed), may: legacy, passes: true, unasked: true},
	}
	for i, right := range legacy {
		others := slices.Delete(slices.Clone(legacy), i, i+1)
		tests["all but to "+right] = impersonation{user: jane, may: others}
		tests["for reviews, and all but to "+right] = impersonation{user: jane, may: slices.Concat(constrained, plus(others, reviews))}
	}
	list := &Attributes{Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "team-a", LabelSelector: "a=b"}
	info := &request.RequestInfo{
		IsResourceRequest: true, Verb: "list", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Namespace: "team-a", LabelSelector: "a=b",
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			callers, h := NewAuthenticator(nil), http.Header{}
			verified := callers.OfUser(&tt.user)
			verified.Present(h)
			expect.Same(t, tt.passes, tt.may.passes(t.Context(), h, info) != nil)
			for _, who := range []struct {
				Identity
				refused Decision
			}{{verified, NotPermitted}, {proxytest.IdentifyAs(callers, h), No}} {
				r := newAuthorizer(t, tt.may.review, ReviewConfig{TTL: time.Minute}, proxytest.DiscardLog())
				right, err := r.Review(t.Context(), known(who.Identity), list)
				expect.NoError(t, err)
				want := tt.passes && !tt.unasked
				if yes := right.Decision() == Yes; yes != want || !yes && right.Decision() != No && right.Decision() != who.refused {
					t.Errorf("decision %d, want a yes: %t", right.Decision(), want)
				}
				expect.Same(t, want, r.Left(&right, time.Now()) > 0)
				if remembered, _ := r.Remembered(who.Identity, list); r.Left(&remembered, time.Now()) > 0 {
					t.Error("a remembered yes counts without those that it depends on")
				}
			}
		})
	}
}

// TestImpersonationEnds: a yes is valid for no longer than what shows that the user may be impersonated, and if that
// cannot be asked for, there is none.
func TestImpersonationEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jane, away := proxytest.Jane(NewAuthenticator(nil)), false
		r := newAuthorizer(t, func(r *http.Request) (*http.Response, error) {
			if r.Header["Impersonate-User"] == nil && away {
				return nil, errors.New("away")
			}
			return answerYes(r)
		}, ReviewConfig{TTL: time.Minute}, proxytest.DiscardLog())
		ask := func(namespace string) *Right {
			asked := listPods()
			asked.Namespace = namespace
			right, err := r.Review(t.Context(), known(jane), asked)
			expect.Same(t, []bool{away, away}, []bool{err != nil, right.Decision() != Yes})
			return &right
		}
		ask("a")
		time.Sleep(40 * time.Second)
		expect.Same(t, 20*time.Second, r.Left(ask("b"), time.Now()))
		time.Sleep(20 * time.Second)
		away = true
		ask("b")
	})
}
