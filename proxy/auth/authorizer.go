package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

const (
	// maxAnswers is the number of answers that an Authorizer remembers.
	maxAnswers = 16 << 10

	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// Authorizer asks the upstream whether a caller may do something. It sends a SelfSubjectAccessReview as the caller: with the
// caller's own Authorization and Impersonate-* headers, or as the user whom listproxy impersonates. kube-apiserver
// authenticates the review like any request of the caller, and asks the same authorizer. Every authenticated user may create
// such reviews (the ClusterRole system:basic-user).
//
//	question   whether a caller may do what some Attributes describe
//	answer     the upstream's Decision on a question, with the time of the question and a TTL
//	ruling     the Decision on a request, with the answers on which it depends (several if a user is impersonated)
//
// An Authorizer remembers answers for [ReviewConfig].TTL. A Yes that is remembered can outlive the right: a revocation takes
// effect when the TTL is over, or sooner if RecordRevocation is called. A No that is remembered does no harm: listproxy
// forwards the request, and the upstream decides. So a new right counts at once.
//
// An Authorizer is safe for concurrent use.
type Authorizer struct {
	send     SendAs
	endpoint string
	cache    *reviewCache[Decision]
}

// Decision is the upstream's decision on a question.
type Decision int

const (
	// No means that the right is not proven. For example, the caller lacks the right, or may not create reviews.
	No Decision = iota
	// Yes means that the caller has the right.
	Yes
	// YesByRequest means that the caller has the right, since the upstream has carried out such a request ([Authorizer.Learn]).
	YesByRequest
	// Unauthenticated means that the upstream does not accept the caller's credentials (401).
	Unauthenticated
	// Warned means that the response to a review with the caller's own token had a Warning header. kube-apiserver does not warn
	// about reviews, so the warning is about the token. For example, the token may be one that was generated into a Secret. The
	// upstream warns about such a token at every request, and a list from memory would lack the warning.
	Warned
	// ImpersonationForbidden means that the caller has the right, but listproxy's account may not impersonate the caller for
	// such a request.
	ImpersonationForbidden
)

// Ruling is the decision on a request, with the answers on which the decision depends. See [Authorizer.ValidFor].
type Ruling struct {
	// right is the answer about the caller's right. Its value is the decision.
	right answer[Decision]
	// impersonation has the answers that prove the right to impersonate. It is nil if nobody is impersonated, or if the
	// decision is not Yes.
	impersonation []answer[Decision]
}

// Decision returns the decision, which may no longer be valid.
func (r *Ruling) Decision() Decision { return r.right.value }

// Attributes describe the request that a review is about. The namespace is empty if the request is about all namespaces, or
// about a resource without namespaces. The selectors are written as in query parameters.
type Attributes = authorizationv1.ResourceAttributes

// NewAuthorizer returns an Authorizer that sends its reviews through send to the API server at base.
func NewAuthorizer(send SendAs, base *url.URL, cfg ReviewConfig) *Authorizer {
	return &Authorizer{
		send:     send,
		endpoint: base.JoinPath(reviewPath).String(),
		cache:    newReviewCache[Decision](cfg, maxAnswers),
	}
}

// Review returns the ruling on whether the caller may do what attrs describe. It asks the upstream unless the answers are
// remembered. If a user is impersonated, this user must have the right, and the impersonator must have the right to impersonate
// the user for such a request.
//
// With an error, the decision is No. The error does not contain the credential. The reasons for an error are:
//
//   - too many questions are waiting to be sent, as in [ErrNoSeat]
//   - the upstream could not be asked, or ctx ended before the answer
//   - the response was a 5xx, a 429 or not JSON
//   - no answer was still valid when it came
func (a *Authorizer) Review(ctx context.Context, who *Caller, attrs *Attributes) (Ruling, error) {
	right, err := a.ask(ctx, who, attrs)
	// YesByRequest needs no proof of impersonation: the upstream has accepted the impersonation with the request.
	if err != nil || right.value != Yes || who.Identity.ImpersonatedUser() == nil {
		return Ruling{right: right}, err
	}
	proof, proven, err := a.proveImpersonation(ctx, who, attrs)
	switch {
	case err != nil:
		return Ruling{}, err
	case proven:
		return Ruling{right: right, impersonation: proof}, nil
	case who.Identity.Impersonator().IsOwn(): // an operator can grant listproxy's account the right
		right.value = ImpersonationForbidden
	default: // the caller may not impersonate this user
		right.value = No
	}
	return Ruling{right: right}, nil
}

// ask returns the answer to one question about the caller or, if a user is impersonated, about this user. Whether the
// impersonator may impersonate the user is another question.
//
// The answer is No, without a review, in two cases:
//
//   - The caller has no credentials.
//   - The verb, version or resource is empty. In a review, it would stand for all verbs, versions or resources.
func (a *Authorizer) ask(ctx context.Context, who *Caller, attrs *Attributes) (answer[Decision], error) {
	if !who.Identity.HasCredentials() || attrs.Verb == "" || attrs.Version == "" || attrs.Resource == "" {
		return answer[Decision]{value: No}, nil
	}
	return a.cache.recallOrAsk(ctx, question[Decision]{
		who:    who,
		key:    decisionKey(who.Identity, attrs),
		scope:  scopeOf(who.Identity, attrs),
		review: func(ctx context.Context) (Decision, error) { return a.sendReview(ctx, who.Identity, attrs) },
	})
}

// Remembers reports whether a valid answer about the caller's right is remembered. If a user is impersonated, this is the
// answer about the user, and [Authorizer.Review] may still have to ask about the right to impersonate.
func (a *Authorizer) Remembers(id Identity, attrs *Attributes) bool {
	_, ok := a.cache.recall(decisionKey(id, attrs), time.Now())
	return ok
}

// Learn remembers YesByRequest as the answer to a question: the caller has the right to do what attrs describe, since the
// upstream has carried out such a request of the caller. The answer expires as if a review had been sent at the time sent.
func (a *Authorizer) Learn(id Identity, attrs *Attributes, sent time.Time) {
	learned := answer[Decision]{value: YesByRequest, scope: scopeOf(id, attrs), asked: sent, ttl: a.cache.TTL}
	a.cache.remember(decisionKey(id, attrs), learned)
}

// ValidFor returns the time for which the ruling stays valid. It is 0 if the decision is neither Yes nor YesByRequest.
func (a *Authorizer) ValidFor(r *Ruling, now time.Time) time.Duration {
	if r.right.value != Yes && r.right.value != YesByRequest {
		return 0
	}
	shortest := a.cache.validFor(&r.right, now)
	for i := range r.impersonation {
		shortest = min(shortest, a.cache.validFor(&r.impersonation[i], now))
	}
	return shortest
}

// RecordRevocation notes that RBAC may just have revoked rights in a namespace, or in all namespaces if it is "". Answers about
// these rights then expire one second after their question (see revokedTTL and reviewCache.validFor).
func (a *Authorizer) RecordRevocation(namespace string) { a.cache.recordRevocation(namespace) }

// Lookups returns two counts of questions since the start. hits counts the questions with a valid answer in memory. misses
// counts all other questions, including those that waited for the answer to an equal question.
func (a *Authorizer) Lookups() (hits, misses uint64) {
	return a.cache.hits.Load(), a.cache.misses.Load()
}

// sendReview sends a review, and returns the decision that follows from the response.
func (a *Authorizer) sendReview(ctx context.Context, id Identity, attrs *Attributes) (Decision, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attrs},
	}
	response := &authorizationv1.SelfSubjectAccessReview{}
	code, header, err := postReview(ctx, a.send, id, a.endpoint, review, response)
	switch { // The cases about the code come first: the body of an error need not be JSON, or may break off.
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests:
		return No, fmt.Errorf("the upstream answered the review with status %d", code)
	case code == http.StatusUnauthorized:
		return Unauthenticated, nil
	case isError(code):
		return No, nil
	case err != nil:
		return No, fmt.Errorf("the review: %w", err)
	case id.HasToken() && len(header.Values("Warning")) > 0:
		return Warned, nil
	case isYes(response, review):
		return Yes, nil
	}
	return No, nil
}

// decisionKey returns the key under which the answer to a question is remembered: the caller's key, whose length is fixed,
// followed by all attributes in protobuf. So no two questions have the same key.
func decisionKey(id Identity, attrs *Attributes) string {
	caller := id.Key()
	key := make([]byte, len(caller)+attrs.Size())
	copy(key, caller[:])
	_, _ = attrs.MarshalToSizedBuffer(key[len(caller):]) // never fails
	return string(key)
}

// scope has the namespaces whose Roles and RoleBindings decide about a right. ClusterRoles and ClusterRoleBindings decide
// about every right, and have no namespace.
type scope struct {
	// requested is the namespace in the question, or "" if the question has none.
	requested string
	// account is the namespace of the impersonated service account, or "" if none is impersonated.
	account string
}

// scopeOf returns the scope of a question.
func scopeOf(id Identity, attrs *Attributes) scope {
	s := scope{requested: attrs.Namespace}
	if user := id.ImpersonatedUser(); user != nil {
		s.account, _, _ = serviceaccount.SplitUsername(user.Name) // returns "" if the user is not a service account
	}
	return s
}

// isYes reports whether response is a yes to the review that was sent. A yes must repeat the review's attributes, since an
// upstream that does not know selectors drops them, and bytes that are not UTF-8 come back changed.
func isYes(response, sent *authorizationv1.SelfSubjectAccessReview) bool {
	isSameQuestion := response.TypeMeta == sent.TypeMeta && reflect.DeepEqual(response.Spec, sent.Spec)
	return isSameQuestion && response.Status.Allowed && !response.Status.Denied
}
