package auth

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	maxDecisions = 16 << 10

	// maxReviewBody bounds the answer to a review, in bytes. What was asked
	// comes back in it, so a request's longest selector fits.
	maxReviewBody = 1 << 20

	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// Decision is what the upstream said about a right.
type Decision int

const (
	// No is everything that is not one of the others.
	No Decision = iota
	// Yes means that the caller may.
	Yes
	// Done means that the upstream has done it for the caller. So the caller may, and whoever impersonates the caller may do so.
	Done
	// Unauthenticated means that the upstream does not accept the caller's credentials (401).
	Unauthenticated
	// Warned means that the answer to a review with the caller's own token came with a warning. kube-apiserver does
	// not warn of reviews, so this is about the token (it may be one that was generated into a Secret)
	// and comes with every answer to this caller. An answer from memory would lack it. (Warnings of
	// listproxy's own token, with which it impersonates users, are not for them.)
	Warned
	// NotPermitted means that the caller may, but the upstream would not let listproxy's account do it as the caller.
	NotPermitted
)

// Right is the result of a review, and how long it is valid.
type Right struct {
	answer[Decision]
	// impersonation has the other answers that a yes depends on.
	impersonation []answer[Decision]
}

// Decision is what the upstream said.
func (r *Right) Decision() Decision { return r.value }

// Attributes describe what a review asks about: a request as the API server would authorize it. All
// of them come from one parsed request. The selectors are written as in the query parameters.
type Attributes struct {
	Verb          string
	Group         string // empty for the core group
	Version       string
	Resource      string
	Subresource   string
	Namespace     string // empty for all namespaces and for cluster-scoped resources
	Name          string // empty unless the request is about one name
	LabelSelector string
	FieldSelector string
}

// Authorizer asks the upstream whether a caller may do something, as the caller: it sends a
// SelfSubjectAccessReview with the caller's own Authorization header and Impersonate-* headers, or as the
// user whom listproxy impersonates. kube-apiserver authenticates that request as it would authenticate the caller's
// own, and answers by the same authorizer that its filters ask. Every authenticated user may create
// such reviews (the ClusterRole system:basic-user); for a user who may not, the answer is a no.
//
// Answers are remembered for the TTL. So a right can outlive its revocation by the TTL; Revoked ends
// it sooner. After a no, requests are forwarded, so a new right counts at once.
//
// It is safe for concurrent use.
type Authorizer struct {
	send     SendAs
	endpoint string
	log      *slog.Logger
	reviews  *questions[Decision]
}

// NewAuthorizer returns an Authorizer that sends its reviews through send to the API
// server at base.
func NewAuthorizer(send SendAs, base *url.URL, cfg ReviewConfig, log *slog.Logger) *Authorizer {
	endpoint := base.JoinPath(reviewPath)
	endpoint.User = nil
	return &Authorizer{send: send, endpoint: endpoint.String(), log: log, reviews: newQuestions[Decision](cfg, maxDecisions)}
}

// Review returns what the upstream says about whether the caller may do what a describes: both as the user
// who is impersonated, if any, and whether this user may be impersonated for it. An error
// means that the upstream could not be asked or gave no answer (a transport error, a 5xx, a 429, ctx
// ended), or [ErrNoSeat]; it comes with a no and does not contain the credential.
func (r *Authorizer) Review(ctx context.Context, who *Caller, a *Attributes) (right Right, err error) {
	right.answer, err = r.ask(ctx, who, a)
	if err != nil || right.value != Yes || who.Identity.Named() == nil {
		return right, err
	}
	right.impersonation, err = r.impersonation(ctx, who, a)
	switch {
	case err != nil:
		return Right{}, err
	case right.impersonation != nil:
	case who.Identity.Impersonator().IsOwn():
		right.value = NotPermitted
	default:
		right.value = No
	}
	return right, nil
}

// ask returns the answer to one question.
func (r *Authorizer) ask(ctx context.Context, who *Caller, a *Attributes) (answer[Decision], error) {
	// In a review, unlike in a request, an empty version means all versions.
	if !who.Identity.Known() || a.Verb == "" || a.Version == "" || a.Resource == "" {
		return answer[Decision]{}, nil
	}
	return r.reviews.get(ctx, who, decisionKey(who.Identity, a), scopeOf(who.Identity, a), func(ctx context.Context) (Decision, error) {
		return r.post(ctx, who.Identity, a)
	})
}

// Remembered returns what is remembered of the caller's right; known is false if the upstream would have to be asked. The
// right of a caller who impersonates somebody depends on more answers, and stays zero.
func (r *Authorizer) Remembered(id Identity, a *Attributes) (right Right, known bool) {
	right.answer, known = r.reviews.remembered(decisionKey(id, a), time.Now())
	if !known || id.Named() != nil {
		return Right{}, known
	}
	r.reviews.hits.Add(1)
	return right, true
}

// Learn remembers that the upstream has done what a describes for a caller, as the answer to a review that was sent
// when that request was. It says nothing of other users, nor of anything else.
func (r *Authorizer) Learn(id Identity, a *Attributes, sent time.Time) {
	r.reviews.remember(decisionKey(id, a), answer[Decision]{value: Done, scope: scopeOf(id, a), asked: sent, ttl: r.reviews.ttl})
}

// Left returns the time that a yes is still valid; 0 if that is over.
func (r *Authorizer) Left(right *Right, now time.Time) time.Duration {
	if right.value != Yes && right.value != Done {
		return 0
	}
	left := r.reviews.left(&right.answer, now)
	for i := range right.impersonation {
		left = min(left, r.reviews.left(&right.impersonation[i], now))
	}
	return left
}

// Revoked says that RBAC may have taken rights away in a namespace, or in all if it is "". A yes that this may
// concern, asked for until then or within authorizerLag, counts for a second from when it was asked for.
func (r *Authorizer) Revoked(namespace string) { r.reviews.revoke(namespace) }

// Stats is what an [Authorizer] has been asked since it was made: Hits are the questions whose
// answer was remembered, Misses those for which the upstream was asked, or was just being asked.
type Stats struct{ Hits, Misses uint64 }

// Stats returns how often what was asked was known.
func (r *Authorizer) Stats() Stats {
	return Stats{Hits: r.reviews.hits.Load(), Misses: r.reviews.misses.Load()}
}

// post makes the request and judges the response.
func (r *Authorizer) post(ctx context.Context, id Identity, a *Attributes) (Decision, error) {
	review := newReview(a)
	code, header, answer, err := sendQuestion(ctx, r.send, id, r.endpoint, review, maxReviewBody)
	switch {
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests:
		return No, fmt.Errorf("the upstream answered the review with status %d", code)
	case code == http.StatusUnauthorized:
		return Unauthenticated, nil
	case code != 0 && code != http.StatusOK && code != http.StatusCreated:
		return No, nil
	case err != nil:
		return No, fmt.Errorf("the review: %w", err)
	case id.BringsToken() && len(header.Values("Warning")) > 0:
		return Warned, nil
	}
	allowed, problem := judgeReview(answer, review)
	if problem != "" {
		r.log.DebugContext(ctx, "the upstream's answer to a review cannot be used, which counts as a no", "problem", problem)
	}
	if allowed {
		return Yes, nil
	}
	return No, nil
}

// decisionKey returns the full key of a decision: who asks, and every
// attribute with its length before it, so that no two questions share one.
func decisionKey(id Identity, a *Attributes) string {
	caller := id.Key()
	key := append(make([]byte, 0, 256), caller[:]...)
	for _, field := range [...]string{
		a.Verb, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name, a.LabelSelector, a.FieldSelector,
	} {
		key = binary.AppendUvarint(key, uint64(len(field)))
		key = append(key, field...)
	}
	return string(key)
}

// sendQuestion sends a question to the upstream as a caller. It returns the status, 0 if there was no
// answer, the headers, and the body, which has atMost bytes.
func sendQuestion(
	ctx context.Context, send SendAs, id Identity, endpoint string, question any, atMost int64,
) (code int, header http.Header, answer []byte, err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("it cannot be written: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
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
	answer, err = io.ReadAll(io.LimitReader(resp.Body, atMost+1))
	switch {
	case err != nil:
		err = fmt.Errorf("its answer broke off: %w", err)
	case int64(len(answer)) > atMost:
		err = errors.New("its answer is too long")
	}
	return resp.StatusCode, resp.Header, answer, err
}

// newReview returns the review that asks for a.
func newReview(a *Attributes) *authorizationv1.SelfSubjectAccessReview {
	attributes := &authorizationv1.ResourceAttributes{
		Verb:        a.Verb,
		Group:       a.Group,
		Version:     a.Version,
		Resource:    a.Resource,
		Subresource: a.Subresource,
		Namespace:   a.Namespace,
		Name:        a.Name,
	}
	if a.FieldSelector != "" {
		attributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: a.FieldSelector}
	}
	if a.LabelSelector != "" {
		attributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: a.LabelSelector}
	}
	return &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{
			APIVersion: authorizationv1.SchemeGroupVersion.String(),
			Kind:       "SelfSubjectAccessReview",
		},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
	}
}

// judgeReview reports whether answer is a yes to asked. problem says why it is no answer; it is empty
// if it is one. The review in the answer must equal asked: an upstream that does not know a selector
// drops it, and bytes that are not UTF-8 come back changed.
func judgeReview(answer []byte, asked *authorizationv1.SelfSubjectAccessReview) (allowed bool, problem string) {
	var review authorizationv1.SelfSubjectAccessReview
	switch {
	case utiljson.Unmarshal(answer, &review) != nil:
		return false, "not JSON of the expected form"
	case review.TypeMeta != asked.TypeMeta || !reflect.DeepEqual(review.Spec, asked.Spec):
		return false, "another question"
	}
	return review.Status.Allowed && !review.Status.Denied, ""
}

// SendAs sends a request of listproxy's own making as the caller id, and returns the answer. r has
// no credentials yet: it gets the caller's, or listproxy's with headers that impersonate exactly
// this caller. It follows no redirects. Its errors contain no credential.
type SendAs func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error)
