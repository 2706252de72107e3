package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// grant is the right to one kind of request, or to impersonate: {verb: "impersonate", resource: "users", name: "jane"}.
type grant struct{ verb, group, resource, subresource, namespace, name, labels string }

// grants stands for a kube-apiserver at which the user "account" has exactly these rights, and all other users may do
// everything. In the tests, "account" is the impersonator: a caller, or listproxy's own account.
type grants []grant

// Authorize implements [authorizer.Authorizer].
func (g grants) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	selector, err := a.GetLabelSelector()
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	needed := grant{
		verb: a.GetVerb(), group: a.GetAPIGroup(), resource: a.GetResource(), subresource: a.GetSubresource(),
		namespace: a.GetNamespace(), name: a.GetName(), labels: labels.NewSelector().Add(selector...).String(),
	}
	if a.GetUser().GetName() != "account" || slices.Contains(g, needed) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// impersonate sends a request of the sender with the headers h through kube-apiserver's own filter. It returns the user whom
// kube-apiserver sees behind the filter, or nil if the filter refuses the request.
func (g grants) impersonate(
	ctx context.Context, sender string, h http.Header, info *request.RequestInfo,
) (effective user.Info) {
	filter := impersonation.WithConstrainedImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		effective, _ = request.UserFrom(r.Context())
	}), g, scheme.Codecs)
	ctx = request.WithRequestInfo(request.WithUser(ctx, &user.DefaultInfo{Name: sender}), info)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.Header = h.Clone()
	filter.ServeHTTP(httptest.NewRecorder(), r)
	return effective
}

// replyTo replies to a review that "account" sends, perhaps with Impersonate-* headers: it lets the review pass the filter, and
// then asks the authorizer.
func (g grants) replyTo(r *http.Request) (*http.Response, error) {
	spec, err := proxytest.ReadReview(r)
	if err != nil {
		return nil, err
	}
	impersonated := g.impersonate(r.Context(), "account", r.Header, &request.RequestInfo{
		IsResourceRequest: true, Verb: "create",
		APIGroup: "authorization.k8s.io", APIVersion: "v1", Resource: "selfsubjectaccessreviews",
	})
	if impersonated == nil {
		return inmemory.Answer(r, http.StatusForbidden, ""), nil
	}
	asked := spec.ResourceAttributes
	var selector labels.Requirements
	if asked.LabelSelector != nil {
		if selector, err = labels.ParseToRequirements(asked.LabelSelector.RawSelector); err != nil {
			return nil, err
		}
	}
	decision, _, err := g.Authorize(r.Context(), authorizer.AttributesRecord{
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

// TestImpersonation: Review says yes to a list as another user if kube-apiserver's own impersonation filter lets that list
// pass, and no if it does not. In the two cases marked stricter, Review says no to a list that would pass. Each case is tried
// with both impersonators: a caller who sends Impersonate-* headers, and listproxy's account, which sends them for a caller
// whom it has verified.
//
// The list is one of apps/v1 deployments in the namespace team-a with the label selector a=b. There are two ways to the right
// to impersonate jane in this list:
//
//	for all requests   "impersonate" on jane's name, groups, UID and extras (janeForAll)
//	for some requests  "impersonate:user-info" on the same (janeForSome), and "impersonate-on:user-info:list" on the
//	(KEP-5284)         deployments (onList). The review of the list, which is a request, too, needs
//	                   "impersonate-on:user-info:create" on reviews (onReview).
//
// In the second way, a service account needs verbs with "serviceaccount" in place of "user-info".
func TestImpersonation(t *testing.T) {
	const authentication = "authentication.k8s.io"
	onReview := func(kind string) grant {
		return grant{
			verb: "impersonate-on:" + kind + ":create", group: "authorization.k8s.io", resource: "selfsubjectaccessreviews",
		}
	}
	onList := func(kind string) grant {
		return grant{
			verb: "impersonate-on:" + kind + ":list", group: "apps", resource: "deployments", namespace: "team-a", labels: "a=b",
		}
	}
	const users, serviceAccounts = "user-info", "serviceaccount" // kinds of users, as verbs name them
	onListOfOtherNamespace := onList(users)
	onListOfOtherNamespace.namespace = "team-b"
	onListWithOtherSelector := onList(users)
	onListWithOtherSelector.labels = "a=c"
	onWatch := onList(users)
	onWatch.verb = "impersonate-on:user-info:watch"
	groupAuthenticated := grant{verb: "impersonate", resource: "groups", name: user.AllAuthenticated}
	// impersonateJane returns the rights to impersonate all of jane's properties.
	impersonateJane := func(verb, group string) grants {
		return grants{
			{verb: verb, group: group, resource: "users", name: "jane"},
			{verb: verb, group: group, resource: "groups", name: "team"},
			{verb: verb, group: group, resource: "groups", name: user.AllAuthenticated},
			{verb: verb, group: authentication, resource: "uids", name: "7"},
			{verb: verb, group: authentication, resource: "userextras", subresource: "example.com/key", name: "a"},
			{verb: verb, group: authentication, resource: "userextras", subresource: "example.com/key", name: "b"},
		}
	}
	janeForAll := impersonateJane("impersonate", "")
	janeForSome := impersonateJane("impersonate:user-info", authentication)
	robotForAll := grant{verb: "impersonate", resource: "serviceaccounts", namespace: "ns", name: "robot"}
	robotForSome := grant{
		verb: "impersonate:serviceaccount", group: authentication, resource: "serviceaccounts", namespace: "ns", name: "robot",
	}
	jane := user.DefaultInfo{
		Name: "jane", UID: "7", Groups: []string{"team", user.AllAuthenticated},
		Extra: map[string][]string{"example.com/key": {"a", "b"}},
	}
	robot := user.DefaultInfo{Name: "system:serviceaccount:ns:robot"}
	robotInGroup := user.DefaultInfo{Name: robot.Name, Groups: []string{user.AllAuthenticated}}
	node := user.DefaultInfo{Name: "system:node:a"}
	inGroups := func(n int) user.DefaultInfo {
		return user.DefaultInfo{Name: "jane", Groups: slices.Repeat([]string{"team"}, n)}
	}
	plus := func(g grants, more ...grant) grants { return slices.Concat(g, more) }
	type impersonation struct {
		user           user.DefaultInfo // who is impersonated
		grants         grants           // the rights of the impersonator
		upstreamAllows bool             // the list passes kube-apiserver's filter
		stricter       bool             // Review says no to a list that kube-apiserver allows
	}
	tests := map[string]impersonation{
		"jane, for all requests": {user: jane, grants: janeForAll, upstreamAllows: true},
		"jane, for this list": {
			user: jane, grants: plus(janeForSome, onReview(users), onList(users)), upstreamAllows: true,
		},
		"jane, for reviews only":       {user: jane, grants: plus(janeForSome, onReview(users))},
		"jane, in another namespace":   {user: jane, grants: plus(janeForSome, onReview(users), onListOfOtherNamespace)},
		"jane, with another selector":  {user: jane, grants: plus(janeForSome, onReview(users), onListWithOtherSelector)},
		"jane, for watches":            {user: jane, grants: plus(janeForSome, onReview(users), onWatch)},
		"any user but jane, this list": {user: jane, grants: grants{onReview(users), onList(users)}},
		"service account":              {user: robot, grants: grants{robotForAll}, upstreamAllows: true},
		"service account by the rights for users": {
			user: robot, grants: grants{
				{verb: "impersonate", resource: "users", name: robot.Name}, onReview(users), onList(users),
			},
		},
		"service account, for this list": { // Review does not ask for this kind of user
			user: robot, grants: grants{robotForSome, onReview(serviceAccounts), onList(serviceAccounts)},
			upstreamAllows: true, stricter: true,
		},
		"service account for reviews, users for this list": {
			user: robot, grants: grants{robotForSome, onReview(serviceAccounts), onList(users)},
		},
		"service account without its group": {user: robotInGroup, grants: grants{robotForAll, onList(users)}},
		"service account with its group": {
			user: robotInGroup, grants: grants{robotForAll, groupAuthenticated}, upstreamAllows: true,
		},
		"node by the rights for users": {
			user: node, grants: grants{
				onReview(users), onList(users),
				{verb: "impersonate:user-info", group: authentication, resource: "users", name: node.Name},
			},
		},
		"as many groups as Review asks about": {
			user: inGroups(maxImpersonationQuestions - 1), grants: janeForAll, upstreamAllows: true,
		},
		"more groups than Review asks about": {
			user: inGroups(maxImpersonationQuestions), grants: janeForAll, upstreamAllows: true, stricter: true,
		},
	}
	for i, missing := range janeForAll { // each one of these grants is needed
		others := slices.Delete(slices.Clone(janeForAll), i, i+1)
		tests[fmt.Sprintf("jane, for all requests without %+v", missing)] = impersonation{user: jane, grants: others}
		tests[fmt.Sprintf("jane, for reviews, and for all requests without %+v", missing)] = impersonation{
			user: jane, grants: slices.Concat(janeForSome, plus(others, onReview(users))),
		}
	}
	// The list, as a review and as kube-apiserver's filter describe it.
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
			authenticator := NewAuthenticator(nil)
			verified := authenticator.NewVerifiedIdentity(&tt.user)
			h := http.Header{} // the headers with which both impersonators name the user
			verified.SetHeaders(h)
			// kube-apiserver's filter does what the case says.
			expect.Same(t, tt.upstreamAllows, tt.grants.impersonate(t.Context(), "account", h, info) != nil)
			// So does Review.
			for _, impersonator := range []struct {
				name     string
				identity Identity
				wantIfNo []Decision // one of these in place of Yes
			}{
				{name: "listproxy's account", identity: verified, wantIfNo: []Decision{No, ImpersonationForbidden}},
				{name: "the caller, by headers", identity: proxytest.IdentifyAs(authenticator, h), wantIfNo: []Decision{No}},
			} {
				wantYes := tt.upstreamAllows && !tt.stricter
				want := impersonator.wantIfNo
				if wantYes {
					want = []Decision{Yes}
				}
				a := newAuthorizer(t, tt.grants.replyTo, ReviewConfig{TTL: time.Minute})
				ruling, err := a.Review(t.Context(), acceptedCaller(impersonator.identity), list)
				expect.NoError(t, err)
				if got := ruling.Decision(); !slices.Contains(want, got) {
					t.Errorf("%s: got decision %d, want one of %d", impersonator.name, got, want)
				}
				expect.Same(t, wantYes, a.ValidFor(&ruling, time.Now()) > 0)
			}
		})
	}
}

// TestImpersonationEnds: a right is valid for no longer than the right to impersonate. Review returns an error if the right to
// impersonate cannot be reviewed.
func TestImpersonationEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, left = time.Minute, 20 * time.Second
		jane := proxytest.Jane(NewAuthenticator(nil))
		failing := false // reviews of the right to impersonate fail
		a := newAuthorizer(t, func(r *http.Request) (*http.Response, error) {
			if r.Header["Impersonate-User"] == nil && failing {
				return nil, errors.New("no answer")
			}
			return replyYes(r)
		}, ReviewConfig{TTL: ttl})
		reviewIn := func(namespace string) (*Ruling, error) {
			pods := listPods()
			pods.Namespace = namespace
			ruling, err := a.Review(t.Context(), acceptedCaller(jane), pods)
			return &ruling, err
		}
		_, err := reviewIn("a") // also reviews the right to impersonate, which is then remembered
		expect.NoError(t, err)
		// A younger right, in namespace b, ends with the older right to impersonate.
		time.Sleep(ttl - left)
		ruling, err := reviewIn("b")
		expect.NoError(t, err)
		expect.Same(t, left, a.ValidFor(ruling, time.Now()))
		// When the right to impersonate has expired and cannot be reviewed, the right in b does not count.
		time.Sleep(left)
		failing = true
		if ruling, err := reviewIn("b"); err == nil || ruling.Decision() == Yes {
			t.Errorf("got decision %d and error %v, want an error and no yes", ruling.Decision(), err)
		}
	})
}
