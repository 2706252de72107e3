package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

const (
	// maxDecisions is the number of answers to reviews that are remembered.
	maxDecisions = 16 << 10

	// maxReviewBody bounds the answer to a review, in bytes. The answer repeats the question, which may have long
	// selectors.
	maxReviewBody = 1 << 20

	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// Authorizer asks the upstream whether a caller may do something. It sends a SelfSubjectAccessReview as the caller:
// with the caller's own Authorization and Impersonate-* headers, or as the user whom listproxy impersonates.
// kube-apiserver authenticates the review like any request of the caller, and asks the same authorizer. Every
// authenticated user may create such reviews (the ClusterRole system:basic-user). For a user who may not, the decision is
// No.
//
// Decisions are remembered for the TTL. So a right can outlive its revocation by the TTL, unless RecordRevocation ends it sooner. A
// new right counts at once, since requests are forwarded after a No.
//
// It is safe for concurrent use.
type Authorizer struct {
	send     SendAs
	endpoint string
	reviews  *reviewCache[Decision]
}

// Decision is the upstream's decision about a right.
type Decision int

const (
	// No stands for everything that no other decision stands for.
	No Decision = iota
	// Yes means that the caller has the right.
	Yes
	// AlreadyDone means that the caller has the right, since the upstream has answered such a request of the caller.
	AlreadyDone
	// Unauthenticated means that the upstream does not accept the caller's credentials (401).
	Unauthenticated
	// Warned means that the answer to a review with the caller's own token came with a warning. kube-apiserver does not
	// warn about reviews. So the warning is about the token, which may have been generated into a Secret, and comes with
	// every answer to this caller. An answer from memory would lack the warning.
	Warned
	// NotPermitted means that the caller has the right, but listproxy's account may not impersonate the caller for it.
	NotPermitted
)

// Right is a decision with its time of validity.
type Right struct {
	answer[Decision]
	// impersonation has the answers about the right to impersonate, on which a Yes depends, too.
	impersonation []answer[Decision]
}

// Decision returns the decision, which may no longer be valid ([Authorizer.ValidFor]).
func (r *Right) Decision() Decision { return r.value }

// Attributes describe the request that a review is about. An empty namespace stands for all namespaces, or for a resource
// without namespaces. The selectors are written as in query parameters.
type Attributes = authorizationv1.ResourceAttributes

// NewAuthorizer returns an Authorizer that sends its reviews through send to the API server at base.
func NewAuthorizer(send SendAs, base *url.URL, cfg ReviewConfig) *Authorizer {
	return &Authorizer{send: send, endpoint: base.JoinPath(reviewPath).String(), reviews: newReviewCache[Decision](cfg, maxDecisions)}
}

// Review returns whether the caller may do what a describes. If a user is impersonated, it returns whether this user may,
// and may be impersonated for it.
//
// An error means that the upstream could not be asked, or has not answered the question (a 5xx, a 429, the end of ctx), or
// is [ErrNoSeat]. The decision is No then. The error does not contain the credential.
func (r *Authorizer) Review(ctx context.Context, who *Caller, a *Attributes) (Right, error) {
	decision, err := r.ask(ctx, who, a)
	right := Right{answer: decision}
	if err != nil || right.value != Yes || who.Identity.ImpersonatedUser() == nil {
		return right, err
	}
	right.impersonation, err = r.impersonation(ctx, who, a)
	switch {
	case err != nil:
		return Right{}, err
	case right.impersonation != nil:
		return right, nil // with a Yes
	case who.Identity.Impersonator().IsOwn():
		right.value = NotPermitted
	default:
		right.value = No
	}
	return right, nil
}

// ask returns the answer to one question, without regard to the right to impersonate.
func (r *Authorizer) ask(ctx context.Context, who *Caller, a *Attributes) (answer[Decision], error) {
	// In a review, empty attributes would stand for all verbs, versions or resources.
	if !who.Identity.Known() || a.Verb == "" || a.Version == "" || a.Resource == "" {
		return answer[Decision]{}, nil
	}
	send := func(ctx context.Context) (Decision, error) { return r.sendReview(ctx, who.Identity, a) }
	return r.reviews.get(ctx, who, decisionKey(who.Identity, a), scopeOf(who.Identity, a), send)
}

// Remembered returns the remembered right of a caller. known is false if the upstream would have to be asked. If a user is
// impersonated, the right is zero, since it depends on other answers, too: known then says only that the answer about the
// user is remembered.
func (r *Authorizer) Remembered(id Identity, a *Attributes) (right Right, known bool) {
	right.answer, known = r.reviews.remembered(decisionKey(id, a), time.Now())
	if !known || id.ImpersonatedUser() != nil {
		return Right{}, known
	}
	r.reviews.hits.Add(1)
	return right, true
}

// Learn remembers that the upstream has done what a describes for a caller. The right is valid as after a review that was
// sent at the time of the request.
func (r *Authorizer) Learn(id Identity, a *Attributes, sent time.Time) {
	done := answer[Decision]{value: AlreadyDone, scope: scopeOf(id, a), asked: sent, ttl: r.reviews.ttl}
	r.reviews.remember(decisionKey(id, a), done)
}

// ValidFor returns the time for which the caller still has the right. It is 0 if the decision is neither Yes nor
// AlreadyDone.
func (r *Authorizer) ValidFor(right *Right, now time.Time) time.Duration {
	if right.value != Yes && right.value != AlreadyDone {
		return 0
	}
	left := r.reviews.validFor(&right.answer, now)
	for i := range right.impersonation {
		left = min(left, r.reviews.validFor(&right.impersonation[i], now))
	}
	return left
}

// RecordRevocation notes that RBAC may just have revoked rights in a namespace, or in all namespaces if it is "". Answers about such
// rights, to reviews that were sent before now or within authorizerLag from now, stay valid for a second after the review
// was sent.
func (r *Authorizer) RecordRevocation(namespace string) { r.reviews.recordRevocation(namespace) }

// Stats counts the questions to an [Authorizer]: Hits with a remembered answer, and Misses, for which the upstream was
// asked, or was already being asked.
type Stats struct{ Hits, Misses uint64 }

// Stats returns the counts since the start.
func (r *Authorizer) Stats() Stats {
	return Stats{Hits: r.reviews.hits.Load(), Misses: r.reviews.misses.Load()}
}

// sendReview sends a review, and returns the decision that follows from the answer.
func (r *Authorizer) sendReview(ctx context.Context, id Identity, a *Attributes) (Decision, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a},
	}
	code, header, body, err := sendQuestion(ctx, r.send, id, r.endpoint, review, maxReviewBody)
	switch {
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests:
		return No, fmt.Errorf("the upstream answered the review with status %d", code)
	case code == http.StatusUnauthorized:
		return Unauthenticated, nil
	case code != 0 && code != http.StatusOK && code != http.StatusCreated:
		return No, nil
	case err != nil:
		return No, fmt.Errorf("the review: %w", err)
	case id.HasToken() && len(header.Values("Warning")) > 0:
		return Warned, nil
	}
	if isYes(body, review) {
		return Yes, nil
	}
	return No, nil
}

// decisionKey returns the key under which the answer to a question is remembered: the caller's key and all attributes, in
// protobuf, so that no two questions have the same key.
func decisionKey(id Identity, a *Attributes) string {
	caller := id.Key()
	key := make([]byte, len(caller)+a.Size())
	copy(key, caller[:])
	_, _ = a.MarshalToSizedBuffer(key[len(caller):]) // never fails
	return string(key)
}

// scope has the namespaces whose Roles and RoleBindings decide about a right: the namespace of the question, and that of
// the service account who is impersonated, if any. "" stands for ClusterRoles and ClusterRoleBindings.
type scope [3]string

func scopeOf(id Identity, a *Attributes) scope {
	namespaces := scope{"", a.Namespace}
	if user := id.ImpersonatedUser(); user != nil {
		namespaces[2], _, _ = serviceaccount.SplitUsername(user.Name) // "" if the user is not a service account
	}
	return namespaces
}

// sendQuestion sends a question to the upstream as a caller. It returns the status, the headers and the body of the answer.
// The status is 0 if there was no answer. A body of more than maxBody bytes is an error.
func sendQuestion(
	ctx context.Context, send SendAs, id Identity, endpoint string, question any, maxBody int64,
) (code int, header http.Header, body []byte, err error) {
	sent, err := json.Marshal(question)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("it cannot be written: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(sent))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("its request cannot be made: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "listproxy")
	resp, err := send(ctx, id, req)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("it did not reach the upstream or was not answered: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		err = fmt.Errorf("its answer broke off: %w", err)
	case int64(len(body)) > maxBody:
		err = errors.New("its answer is too long")
	}
	return resp.StatusCode, resp.Header, body, err
}

// isYes reports whether body is a yes to the review asked. The review in the answer must equal the question: an upstream
// that does not know selectors drops them, and bytes that are not UTF-8 come back changed.
func isYes(body []byte, asked *authorizationv1.SelfSubjectAccessReview) bool {
	var review authorizationv1.SelfSubjectAccessReview
	err := utiljson.Unmarshal(body, &review)
	if err != nil || review.TypeMeta != asked.TypeMeta || !reflect.DeepEqual(review.Spec, asked.Spec) {
		return false
	}
	return review.Status.Allowed && !review.Status.Denied
}

// SendAs sends a request of listproxy's own making as the caller id, and returns the answer. r must have no credentials.
// SendAs adds the caller's, or listproxy's with headers that impersonate exactly this caller. It follows no redirects. Its
// errors contain no credential.
type SendAs func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error)
