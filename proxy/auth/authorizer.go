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

// SendAs sends a request of listproxy's own making as the caller id, and returns the answer. r must have no credentials.
// SendAs adds the caller's, or listproxy's with headers that impersonate exactly this caller. It follows no redirects. Its
// errors contain no credential.
type SendAs func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error)

// Authorizer asks the upstream whether a caller may do something. It sends a SelfSubjectAccessReview as the caller:
// with the caller's own Authorization and Impersonate-* headers, or as the user whom listproxy impersonates.
// kube-apiserver authenticates the review like any request of the caller, and asks the same authorizer. Every
// authenticated user may create such reviews (the ClusterRole system:basic-user). For a user who may not, the decision is
// No.
//
// Decisions are remembered for the TTL. So a right can outlive its revocation by the TTL, unless RecordRevocation ends it
// sooner. A new right counts at once, since requests are forwarded after a No.
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
	// No means that the upstream has not said yes: the caller lacks the right, or the answer shows nothing else.
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
	// ImpersonationForbidden means that the caller has the right, but listproxy's account may not impersonate the caller for
	// it.
	ImpersonationForbidden
)

// Ruling is a decision, and what decides how long it stays valid ([Authorizer.ValidFor]).
type Ruling struct {
	answer[Decision]
	// impersonation has the answers about the right to impersonate, on which a Yes depends, too.
	impersonation []answer[Decision]
}

// Decision returns the decision, which may no longer be valid.
func (r *Ruling) Decision() Decision { return r.value }

// Attributes describe the request that a review is about. An empty namespace stands for all namespaces, or for a resource
// without namespaces. The selectors are written as in query parameters.
type Attributes = authorizationv1.ResourceAttributes

// NewAuthorizer returns an Authorizer that sends its reviews through send to the API server at base.
func NewAuthorizer(send SendAs, base *url.URL, cfg ReviewConfig) *Authorizer {
	return &Authorizer{send: send, endpoint: base.JoinPath(reviewPath).String(), reviews: newReviewCache[Decision](cfg, maxDecisions)}
}

// Review returns whether the caller may do what attrs describe. If a user is impersonated, it returns whether this user may,
// and may be impersonated for it.
//
// An error means that the upstream could not be asked, or has not answered the question (a 5xx, a 429, the end of ctx), or
// is [ErrNoSeat]. The decision is No then. The error does not contain the credential.
func (a *Authorizer) Review(ctx context.Context, who *Caller, attrs *Attributes) (Ruling, error) {
	decision, err := a.ask(ctx, who, attrs)
	ruling := Ruling{answer: decision}
	// AlreadyDone needs no proof of impersonation: the upstream has accepted it.
	if err != nil || ruling.value != Yes || who.Identity.ImpersonatedUser() == nil {
		return ruling, err
	}
	ruling.impersonation, err = a.proveImpersonation(ctx, who, attrs)
	switch {
	case err != nil:
		return Ruling{}, err
	case ruling.impersonation != nil:
		return ruling, nil // with a Yes
	case who.Identity.Impersonator().IsOwn():
		ruling.value = ImpersonationForbidden
	default:
		ruling.value = No
	}
	return ruling, nil
}

// ask returns the answer to one question, without regard to the right to impersonate.
func (a *Authorizer) ask(ctx context.Context, who *Caller, attrs *Attributes) (answer[Decision], error) {
	// In a review, empty attributes would stand for all verbs, versions or resources.
	if !who.Identity.Known() || attrs.Verb == "" || attrs.Version == "" || attrs.Resource == "" {
		return answer[Decision]{}, nil
	}
	return a.reviews.get(ctx, question[Decision]{
		who:   who,
		key:   decisionKey(who.Identity, attrs),
		scope: scopeOf(who.Identity, attrs),
		send:  func(ctx context.Context) (Decision, error) { return a.sendReview(ctx, who.Identity, attrs) },
	})
}

// Remembered returns the remembered ruling about a caller. ok is false if the upstream would have to be asked, and if a user
// is impersonated: then the ruling depends on several answers.
func (a *Authorizer) Remembered(id Identity, attrs *Attributes) (ruling Ruling, ok bool) {
	if id.ImpersonatedUser() != nil {
		return Ruling{}, false
	}
	ruling.answer, ok = a.reviews.remembered(decisionKey(id, attrs), time.Now())
	if ok {
		a.reviews.hits.Add(1)
	}
	return ruling, ok
}

// Learn remembers that the upstream has done what attrs describe for a caller. The right is valid as after a review that was
// sent at the time of the request.
func (a *Authorizer) Learn(id Identity, attrs *Attributes, sent time.Time) {
	done := answer[Decision]{value: AlreadyDone, scope: scopeOf(id, attrs), asked: sent, ttl: a.reviews.ttl}
	a.reviews.remember(decisionKey(id, attrs), done)
}

// ValidFor returns the time for which the caller still has the right. It is 0 if the decision is neither Yes nor
// AlreadyDone.
func (a *Authorizer) ValidFor(r *Ruling, now time.Time) time.Duration {
	if r.value != Yes && r.value != AlreadyDone {
		return 0
	}
	left := a.reviews.validFor(&r.answer, now)
	for i := range r.impersonation {
		left = min(left, a.reviews.validFor(&r.impersonation[i], now))
	}
	return left
}

// RecordRevocation notes that RBAC may just have revoked rights in a namespace, or in all namespaces if it is "". The
// upstream's authorizer may lag behind: so answers to reviews that are sent within authorizerLag from now are doubtful, too.
// Doubtful answers are valid for revokedTTL after the review was sent.
func (a *Authorizer) RecordRevocation(namespace string) { a.reviews.recordRevocation(namespace) }

// Stats counts the questions to an [Authorizer]: Hits with a remembered answer, and Misses, for which the upstream was
// asked, or was already being asked.
type Stats struct{ Hits, Misses uint64 }

// Stats returns the counts since the start.
func (a *Authorizer) Stats() Stats {
	return Stats{Hits: a.reviews.hits.Load(), Misses: a.reviews.misses.Load()}
}

// sendReview sends a review, and returns the decision that follows from the answer.
func (a *Authorizer) sendReview(ctx context.Context, id Identity, attrs *Attributes) (Decision, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attrs},
	}
	reply, err := sendQuestion(ctx, a.send, id, a.endpoint, review, maxReviewBody)
	switch code := reply.code; {
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests:
		return No, fmt.Errorf("the upstream answered the review with status %d", code)
	case code == http.StatusUnauthorized:
		return Unauthenticated, nil
	case code != 0 && code != http.StatusOK && code != http.StatusCreated:
		return No, nil
	case err != nil:
		return No, fmt.Errorf("the review: %w", err)
	case id.HasToken() && len(reply.header.Values("Warning")) > 0:
		return Warned, nil
	case isYes(reply.body, review):
		return Yes, nil
	}
	return No, nil
}

// decisionKey returns the key under which the answer to a question is remembered: the caller's key and all attributes, in
// protobuf, so that no two questions have the same key.
func decisionKey(id Identity, attrs *Attributes) string {
	caller := id.Key()
	key := make([]byte, len(caller)+attrs.Size())
	copy(key, caller[:])
	_, _ = attrs.MarshalToSizedBuffer(key[len(caller):]) // never fails
	return string(key)
}

// scope has the namespaces whose Roles and RoleBindings decide about a right: the namespace of the question, and that of
// the service account who is impersonated, if any. "" stands for ClusterRoles and ClusterRoleBindings.
type scope [3]string

func scopeOf(id Identity, attrs *Attributes) scope {
	namespaces := scope{"", attrs.Namespace}
	if user := id.ImpersonatedUser(); user != nil {
		namespaces[2], _, _ = serviceaccount.SplitUsername(user.Name) // "" if the user is not a service account
	}
	return namespaces
}

// reply is the upstream's answer to a question.
type reply struct {
	code   int // the status; 0 if there was no answer
	header http.Header
	body   []byte
}

// sendQuestion sends a question to the upstream as a caller. With an error, the reply has a status if the upstream has
// answered: then its body broke off, or has more than maxBody bytes.
func sendQuestion(
	ctx context.Context, send SendAs, id Identity, endpoint string, question any, maxBody int64,
) (reply, error) {
	payload, err := json.Marshal(question)
	if err != nil {
		return reply{}, fmt.Errorf("it cannot be written: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(payload))
	if err != nil {
		return reply{}, fmt.Errorf("its request cannot be made: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "listproxy")
	resp, err := send(ctx, id, req)
	if err != nil {
		return reply{}, fmt.Errorf("it did not reach the upstream or was not answered: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		err = fmt.Errorf("its answer broke off: %w", err)
	case int64(len(body)) > maxBody:
		err = errors.New("its answer is too long")
	}
	return reply{code: resp.StatusCode, header: resp.Header, body: body}, err
}

// isYes reports whether body is a yes to a review. The review in the body must equal the one that was sent: an upstream that
// does not know selectors drops them, and bytes that are not UTF-8 come back changed.
func isYes(body []byte, sent *authorizationv1.SelfSubjectAccessReview) bool {
	var answered authorizationv1.SelfSubjectAccessReview
	err := utiljson.Unmarshal(body, &answered)
	if err != nil || answered.TypeMeta != sent.TypeMeta || !reflect.DeepEqual(answered.Spec, sent.Spec) {
		return false
	}
	return answered.Status.Allowed && !answered.Status.Denied
}
