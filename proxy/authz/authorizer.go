package authz

import (
	"bytes"
	"context"
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

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
)

const (
	defaultTimeout = 10 * time.Second
	// maxEntries bounds what a cache remembers; an answer with a long key or many names counts as
	// several.
	maxEntries = 16384

	// ownReviewCounts is how long a yes is valid for the request that asked for it, from when the yes
	// came, even if it is older than the TTL by then: otherwise a TTL of 0, or a slow upstream, would
	// leave no time to answer.
	ownReviewCounts = time.Second

	// maxReviewBody bounds the answer to a review, in bytes. What was asked
	// comes back in it, so a request's longest selector fits.
	maxReviewBody = 1 << 20

	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// ErrWarned is the error of a review with the caller's own token whose answer came with a warning.
// kube-apiserver does not warn of reviews, so this is about the token (it may be one that was
// generated into a Secret) and comes with every answer to this caller. An answer from memory would
// lack it. Warnings of listproxy's own token, with which it impersonates users, are not for them.
var ErrWarned = errors.New("the upstream's answer has a warning for the caller")

// Right is the result of a review, and how long it is valid.
type Right struct {
	allowed bool
	// epoch is the one in which the right is valid (decisionCache).
	epoch  uint64
	counts validity
}

// Allowed says whether the answer was a yes.
func (r Right) Allowed() bool { return r.allowed }

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

// Config configures an Authorizer or a WhoAmI.
type Config struct {
	// TTL is how long an answer (of an Authorizer: a yes) may be used, counted from when it was asked
	// for. Zero or less: each request asks the upstream.
	TTL time.Duration
	// Timeout bounds one question, the wait for its turn included. Zero means ten seconds.
	Timeout time.Duration
}

// timeout is Timeout, or its default.
func (c Config) timeout() time.Duration {
	if c.Timeout <= 0 {
		return defaultTimeout
	}
	return c.Timeout
}

// Authorizer asks the upstream whether a caller may do something, as the caller: it sends a
// SelfSubjectAccessReview with the caller's own Authorization header, or as the user whom listproxy
// impersonates. kube-apiserver authenticates that request as it would authenticate the caller's
// own, and answers by the same authorizer that its filters ask. Every authenticated user may create
// such reviews (the ClusterRole system:basic-user); for a user who may not, the answer is a no.
//
// Everything except a plain yes is a no. A yes, and that a caller is warned, are remembered for the
// TTL. So a right can outlive its revocation by the TTL; Flush ends it sooner.
//
// It is safe for concurrent use.
type Authorizer struct {
	send     SendAs
	endpoint string
	ttl      time.Duration
	timeout  time.Duration
	log      *slog.Logger

	decisions *decisionCache
	reviews   shared[bool]
	turns     *inflight.Limiter[inflight.ShareKey]
	watches   *inflight.Limiter[inflight.ShareKey]
	counts    reviewCounts
}

// NewAuthorizer returns an Authorizer that sends its reviews through send to the API
// server at base.
func NewAuthorizer(send SendAs, base *url.URL, cfg Config, log *slog.Logger) (*Authorizer, error) {
	epochs, err := newExpiringCache[uint64](maxEntries)
	if err != nil {
		return nil, fmt.Errorf("cannot remember reviews: %w", err)
	}
	decisions := &decisionCache{epochs: epochs}
	turns, err := newTurns(cfg.timeout())
	if err != nil {
		return nil, err
	}
	watches, err := newWatchTurns(cfg.timeout())
	if err != nil {
		return nil, err
	}
	endpoint := base.JoinPath(reviewPath)
	endpoint.User = nil
	return &Authorizer{
		send:      send,
		endpoint:  endpoint.String(),
		ttl:       cfg.TTL,
		timeout:   cfg.timeout(),
		log:       log,
		decisions: decisions,
		reviews:   shared[bool]{ttl: cfg.TTL, epoch: decisions.epoch.Load},
		turns:     turns,
		watches:   watches,
	}, nil
}

// Review returns what the upstream says about whether the caller id may do what a describes. A
// review that has to be sent counts to the caller's share until it has ended. Everything except a
// plain yes is a no. A yes to a watch is not remembered: a watch may last for a day, and each is
// reviewed when it begins, as at kube-apiserver. An error means that the upstream could not be
// asked or gave no answer (a transport error, a 5xx, a 429, ctx ended), or [ErrWarned]; it comes
// with a no and does not contain the credential.
func (r *Authorizer) Review(ctx context.Context, id authn.Identity, share inflight.ShareKey, a Attributes) (Right, error) {
	// In a review, unlike in a request, an empty version means all versions.
	if !id.Known() || a.Verb == "" || a.Version == "" || a.Resource == "" {
		return Right{}, nil
	}
	if r.ttl <= 0 {
		r.counts.misses.Add(1)
		return r.reviewNow(ctx, id, share, a)
	}
	key := decisionKey(id, a)
	began := time.Now()
	if yes, ok := r.decisions.find(key, began); ok {
		r.counts.hits.Add(1)
		return yes, nil
	}
	warned := decisionKey(id, Attributes{})
	if _, ok := r.decisions.find(warned, began); ok {
		return Right{}, ErrWarned
	}
	r.counts.misses.Add(1)
	// Only callers of one share wait for one review: it waits for the turn of the share that asked
	// first.
	review, epoch, err := r.reviews.get(ctx, key+string(share[:]), func(ctx context.Context, epoch uint64) (dated[bool], error) {
		review, err := r.ask(ctx, id, share, a)
		if err == nil && review.value && a.Verb != "watch" {
			r.decisions.add(key, epoch, validity{review.asked, r.ttl}, time.Now())
		}
		if errors.Is(err, ErrWarned) { // so that not each of its lists costs a review
			r.decisions.add(warned, epoch, validity{time.Now(), r.ttl}, time.Now())
		}
		return review, err
	})
	return Right{review.value, epoch, r.validity(review.asked, began)}, err
}

// WatchTurn waits until the reviews of a watch may begin, at most for as long as a review may take.
// A forwarded watch costs the upstream more than a review, as long as the watch lasts. So if
// thousands begin at once, they are reviewed one after the other, a few of each caller at a time.
func (r *Authorizer) WatchTurn(ctx context.Context, share inflight.ShareKey) (inflight.Grant[inflight.ShareKey], error) {
	turn, err := r.watches.Acquire(ctx, share, 1)
	if err != nil {
		return turn, fmt.Errorf("the watch's turn to be reviewed did not come: %w", err)
	}
	return turn, nil
}

// reviewNow is Review without remembered or shared answers. If a flush happens before the yes
// comes, it asks again.
func (r *Authorizer) reviewNow(ctx context.Context, id authn.Identity, share inflight.ShareKey, a Attributes) (Right, error) {
	for range maxRounds {
		epoch := r.decisions.epoch.Load()
		review, err := r.ask(ctx, id, share, a)
		if err != nil || !review.value {
			return Right{}, err
		}
		if epoch == r.decisions.epoch.Load() {
			return Right{true, epoch, validity{time.Now(), ownReviewCounts}}, nil
		}
	}
	return Right{}, errOvertaken
}

// validity returns how long a yes is valid that has just come: its review was sent at asked, and
// the request began to wait for it at began.
func (r *Authorizer) validity(asked, began time.Time) validity {
	now := time.Now()
	counts, atLeast := validity{asked, r.ttl}, validity{now, ownReviewCounts}
	if own := !asked.Before(began); own && counts.left(now) < atLeast.left(now) {
		return atLeast
	}
	return counts
}

// Remembers says whether Review would say yes without asking the upstream.
func (r *Authorizer) Remembers(id authn.Identity, a Attributes) bool {
	if r.ttl <= 0 {
		return false
	}
	_, ok := r.decisions.find(decisionKey(id, a), time.Now())
	return ok
}

// Left is for how long a yes is still valid; 0 if its time is over, or if there was a Flush since.
func (r *Authorizer) Left(yes Right, now time.Time) time.Duration {
	if !yes.allowed || yes.epoch != r.decisions.epoch.Load() {
		return 0
	}
	return max(0, yes.counts.left(now))
}

// Flush forgets every decision, including those that the upstream is making now: no request uses a
// yes whose review was sent before Flush was called. Their memory is freed when they expire.
func (r *Authorizer) Flush() { r.decisions.epoch.Add(1) }

// Close ends the cache of decisions. A closed Authorizer still answers, but asks the upstream each
// time.
func (r *Authorizer) Close() { r.decisions.epochs.close() }

// ask sends one review when its turn comes and waits for the answer.
func (r *Authorizer) ask(ctx context.Context, id authn.Identity, share inflight.ShareKey, a Attributes) (dated[bool], error) {
	return inTurn(ctx, r.turns, share, r.timeout, func(ctx context.Context) (bool, error) { return r.post(ctx, id, a) })
}

// post makes the request and judges the response.
func (r *Authorizer) post(ctx context.Context, id authn.Identity, a Attributes) (bool, error) {
	review := newReview(a)
	code, header, answer, err := post(ctx, r.send, id, r.endpoint, review, maxReviewBody)
	switch {
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests:
		return false, fmt.Errorf("the upstream answered the review with status %d", code)
	case code != 0 && code != http.StatusOK && code != http.StatusCreated:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("the review: %w", err)
	case id.BringsToken() && len(header.Values("Warning")) > 0:
		return false, ErrWarned
	}
	allowed, problem := judgeReview(answer, review)
	if problem != "" {
		r.log.DebugContext(ctx, "the upstream's answer to a review cannot be used, which counts as a no", "problem", problem)
	}
	return allowed, nil
}

// post sends a question to the upstream as a caller. It returns the status, 0 if there was no
// answer, the headers, and the body, of which it reads one byte more than atMost.
func post(
	ctx context.Context, send SendAs, id authn.Identity, endpoint string, question any, atMost int64,
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
	if err != nil {
		err = fmt.Errorf("its answer broke off: %w", err)
	}
	return resp.StatusCode, resp.Header, answer, err
}

// newReview returns the review that asks for a.
func newReview(a Attributes) *authorizationv1.SelfSubjectAccessReview {
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

// judgeReview says whether answer is a yes to asked. problem says why it is no answer; it is empty
// if it is one. The review in the answer must equal asked: an upstream that does not know a selector
// drops it, and bytes that are not UTF-8 come back changed.
func judgeReview(answer []byte, asked *authorizationv1.SelfSubjectAccessReview) (allowed bool, problem string) {
	if len(answer) > maxReviewBody {
		return false, "too long"
	}
	var review authorizationv1.SelfSubjectAccessReview
	if err := utiljson.Unmarshal(answer, &review); err != nil {
		return false, "not JSON of the expected form"
	}
	if review.TypeMeta != asked.TypeMeta {
		return false, "another kind of object"
	}
	if !reflect.DeepEqual(review.Spec, asked.Spec) {
		return false, "another question"
	}
	return review.Status.Allowed && !review.Status.Denied, ""
}

// SendAs sends a request of listproxy's own making as the caller id, and returns the answer. r has
// no credentials yet: it gets the caller's, or listproxy's with headers that impersonate exactly
// this caller. It follows no redirects. Its errors contain no credential.
type SendAs func(ctx context.Context, id authn.Identity, r *http.Request) (*http.Response, error)
