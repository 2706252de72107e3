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
	maxDecisions = 16 << 10

	// maxReviewBody bounds the answer to a review, in bytes. The question comes back in it, so it has room for the
	// longest selector of a request.
	maxReviewBody = 1 << 20

	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// Authorizer asks the upstream whether a caller may do something. It sends a SelfSubjectAccessReview as the caller:
// with the caller's own Authorization and Impersonate-* headers, or as the user whom listproxy impersonates.
// kube-apiserver authenticates it like a request of the caller, and asks the same authorizer. Every authenticated user
// may create such reviews (the ClusterRole system:basic-user); for a user who may not, the decision is No.
//
// Decisions are remembered for the TTL. So a right can outlive its revocation by the TTL, unless Revoked ends it
// sooner. After a No, requests are forwarded, so a new right counts at once.
//
// It is safe for concurrent use.
type Authorizer struct {
	send     SendAs
	endpoint string
	reviews  *questions[Decision]
}

// Decision is the upstream's decision about a right.
type Decision int

const (
	// No stands for everything that is not one of the others.
	No Decision = iota
	// Yes means that the caller may do it.
	Yes
	// AlreadyDone means that the upstream has done it for the caller, so the caller may do it.
	AlreadyDone
	// Unauthenticated means that the upstream does not accept the caller's credentials (401).
	Unauthenticated
	// Warned means that the answer to a review with the caller's own token came with a warning. kube-apiserver does not
	// warn of reviews, so the warning is about the token (which may be one that was generated into a Secret), and comes
	// with every answer to this caller. An answer from memory would lack it. Warnings of listproxy's own token, with
	// which it impersonates users, are not for these users.
	Warned
	// NotPermitted means that the caller may do it, but the upstream would not let listproxy's account do it as the
	// caller.
	NotPermitted
)

// Right is a decision with its time of validity.
type Right struct {
	answer[Decision]
	// impersonation has the other answers on which a Yes depends.
	impersonation []answer[Decision]
}

// Decision returns the decision, which may be out of date ([Authorizer.ValidFor]).
func (r *Right) Decision() Decision { return r.value }

// Attributes describe the request that a review asks about. An empty namespace stands for all namespaces, or for a
// resource without namespaces. The selectors are written as in query parameters.
type Attributes = authorizationv1.ResourceAttributes

// NewAuthorizer returns an Authorizer that sends its reviews through send to the API server at base.
func NewAuthorizer(send SendAs, base *url.URL, cfg ReviewConfig) *Authorizer {
	return &Authorizer{send: send, endpoint: base.JoinPath(reviewPath).String(), reviews: newQuestions[Decision](cfg, maxDecisions)}
}

// Review returns whether the caller may do what a describes. If a user is impersonated, that is whether this user may
// do it, and whether this user may be impersonated for it. An error means that the upstream could not be asked, or did
// not answer the question (a 5xx, a 429, the end of ctx), or is [ErrNoSeat]. It comes with a No, and does not contain
// the credential.
func (r *Authorizer) Review(ctx context.Context, who *Caller, a *Attributes) (right Right, err error) {
	right.answer, err = r.ask(ctx, who, a)
	if err != nil || right.value != Yes || who.Identity.Named() == nil {
		return right, err
	}
	right.impersonation, err = r.impersonation(ctx, who, a)
	switch {
	case err != nil:
		return Right{}, err
	case right.impersonation != nil: // the caller may impersonate the user
	case who.Identity.Impersonator().IsOwn():
		right.value = NotPermitted
	default:
		right.value = No
	}
	return right, nil
}

// ask returns the answer to one question.
func (r *Authorizer) ask(ctx context.Context, who *Caller, a *Attributes) (answer[Decision], error) {
	// In a review an empty version stands for all versions.
	if !who.Identity.Known() || a.Verb == "" || a.Version == "" || a.Resource == "" {
		return answer[Decision]{}, nil
	}
	return r.reviews.get(ctx, who, decisionKey(who.Identity, a), scopeOf(who.Identity, a), func(ctx context.Context) (Decision, error) {
		return r.post(ctx, who.Identity, a)
	})
}

// Remembered returns the remembered right of a caller. known is false if the upstream would have to be asked. For a
// caller who impersonates somebody, known only says that this answer is remembered: the right depends on others, too,
// and is zero.
func (r *Authorizer) Remembered(id Identity, a *Attributes) (right Right, known bool) {
	right.answer, known = r.reviews.remembered(decisionKey(id, a), time.Now())
	if !known || id.Named() != nil {
		return Right{}, known
	}
	r.reviews.hits.Add(1)
	return right, true
}

// Learn remembers that the upstream has done what a describes for a caller. It counts as the answer to a review that
// was sent when the request was.
func (r *Authorizer) Learn(id Identity, a *Attributes, sent time.Time) {
	r.reviews.remember(decisionKey(id, a), answer[Decision]{value: AlreadyDone, scope: scopeOf(id, a), asked: sent, ttl: r.reviews.ttl})
}

// ValidFor returns the time for which a Yes is still valid. It is 0 for all other decisions.
func (r *Authorizer) ValidFor(right *Right, now time.Time) time.Duration {
	if right.value != Yes && right.value != AlreadyDone {
		return 0
	}
	left := r.reviews.left(&right.answer, now)
	for i := range right.impersonation {
		left = min(left, r.reviews.left(&right.impersonation[i], now))
	}
	return left
}

// Revoked notes that RBAC may have taken rights away in a namespace, or in all if it is "". Answers that this may
// concern, of reviews that were sent before now or within authorizerLag from now, stay valid for a second after they
// were sent.
func (r *Authorizer) Revoked(namespace string) { r.reviews.revoke(namespace) }

// Stats counts the questions to an [Authorizer]. Hits are those whose answer was remembered. For Misses the upstream
// was asked, or was already being asked.
type Stats struct{ Hits, Misses uint64 }

// Stats returns the counts since the beginning.
func (r *Authorizer) Stats() Stats {
	return Stats{Hits: r.reviews.hits.Load(), Misses: r.reviews.misses.Load()}
}

// post sends a review, and returns the decision that follows from the answer.
func (r *Authorizer) post(ctx context.Context, id Identity, a *Attributes) (Decision, error) {
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

// decisionKey returns the key under which the answer to a question is remembered: the caller, and all attributes in
// protobuf, so that no two questions have one key.
func decisionKey(id Identity, a *Attributes) string {
	caller := id.Key()
	key := make([]byte, len(caller)+a.Size())
	copy(key, caller[:])
	_, _ = a.MarshalToSizedBuffer(key[len(caller):]) // has no way to fail
	return string(key)
}

// scope has the namespaces whose Roles and RoleBindings decide about a right: the one that the question is about, and
// that of a service account who is impersonated. "" stands for ClusterRoles and ClusterRoleBindings.
type scope [3]string

func scopeOf(id Identity, a *Attributes) scope {
	namespaces := scope{"", a.Namespace}
	if user := id.Named(); user != nil {
		namespaces[2], _, _ = serviceaccount.SplitUsername(user.Name) // "" if it is no service account
	}
	return namespaces
}

// sendQuestion sends a question to the upstream as a caller. It returns the status, which is 0 if there was no answer,
// the headers, and the body, which may have maxBody bytes.
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

// isYes reports whether body is a yes to the review that was asked. The review in the answer must equal the question:
// an upstream that does not know a selector drops it, and bytes that are not UTF-8 come back changed.
func isYes(body []byte, asked *authorizationv1.SelfSubjectAccessReview) bool {
	var review authorizationv1.SelfSubjectAccessReview
	err := utiljson.Unmarshal(body, &review)
	if err != nil || review.TypeMeta != asked.TypeMeta || !reflect.DeepEqual(review.Spec, asked.Spec) {
		return false
	}
	return review.Status.Allowed && !review.Status.Denied
}

// SendAs sends a request of listproxy's own making as the caller id, and returns the answer. r comes without
// credentials, and gets the caller's, or listproxy's with headers that impersonate exactly this caller. SendAs follows
// no redirects. Its errors contain no credential.
type SendAs func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error)
