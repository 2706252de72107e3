package authz

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

const (
	whoAmIPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

	// maxWhoAmIBody bounds the answer to the question who a caller is, in bytes: thousands of
	// groups.
	maxWhoAmIBody = 256 << 10
	// userUnit is how many bytes of a user one unit of the cache's bound pays for.
	userUnit = 1024
)

var errNoIdentity = errors.New("the caller has no credentials to ask with")

// WhoAmI learns who callers are, for the audit log and for rules of the policy that name callers:
// what a caller may see is the Authorizer's to say. For a token only the upstream knows, so it is
// asked with a SelfSubjectReview (authentication.k8s.io/v1, since Kubernetes 1.28) sent as the
// caller. Everyone who is authenticated may create such reviews (the ClusterRole
// system:basic-user).
//
// Answers are remembered by the key of the caller's identity, never by a credential, and used
// within the TTL only. It is safe for concurrent use.
type WhoAmI struct {
	send     SendAs
	endpoint string
	ttl      time.Duration
	timeout  time.Duration

	// The users are shared and must not be changed.
	users *expiringCache[*user.DefaultInfo]
	// failures are why the upstream did not say who somebody is.
	failures  *expiringCache[error]
	questions shared[*user.DefaultInfo]
	turns     *inflight.Limiter[inflight.ShareKey]
}

// NewWhoAmI returns a WhoAmI that asks the API server at base, through send. It must be closed in
// the end. The TTL should be no longer than that of the reviews.
func NewWhoAmI(send SendAs, base *url.URL, cfg Config) (*WhoAmI, error) {
	users, err := newExpiringCache[*user.DefaultInfo](maxEntries)
	if err != nil {
		return nil, fmt.Errorf("cannot remember who callers are: %w", err)
	}
	failures, err := newExpiringCache[error](maxEntries)
	if err != nil {
		users.close()
		return nil, fmt.Errorf("cannot remember whom nobody knows: %w", err)
	}
	turns, err := newTurns(cfg.timeout())
	if err != nil {
		users.close()
		failures.close()
		return nil, err
	}
	endpoint := base.JoinPath(whoAmIPath)
	endpoint.User = nil
	return &WhoAmI{
		send:      send,
		endpoint:  endpoint.String(),
		ttl:       cfg.TTL,
		timeout:   cfg.timeout(),
		users:     users,
		failures:  failures,
		questions: shared[*user.DefaultInfo]{ttl: cfg.TTL, epoch: func() uint64 { return 0 }}, // a token stays its user's
		turns:     turns,
	}, nil
}

// User returns the user that the upstream takes the caller id for; a question counts to its share.
// The caller of User must not change the user. An error means that the upstream could not be asked
// or did not say; it holds nothing of the credential and nothing of the user.
func (w *WhoAmI) User(ctx context.Context, id authn.Identity, share inflight.ShareKey) (user.Info, error) {
	if !id.Known() {
		return nil, errNoIdentity
	}
	if w.ttl <= 0 {
		learned, err := w.ask(ctx, id, share)
		if err != nil {
			return nil, err
		}
		return learned.value, nil
	}
	who := id.Key()
	key := string(who[:])
	if u, ok := w.users.get(key, time.Now()); ok {
		return u, nil
	}
	learned, _, err := w.questions.get(ctx, key, func(ctx context.Context, _ uint64) (dated[*user.DefaultInfo], error) {
		learned, err := w.ask(ctx, id, share)
		if err == nil {
			size := kubehttp.UserSize(learned.value)
			w.users.add(key, learned.value, 1+int64(size/userUnit), validity{learned.asked, w.ttl}, time.Now())
		}
		return learned, err
	})
	if err != nil {
		return nil, err
	}
	return learned.value, nil
}

// Close ends the caches. A WhoAmI that is closed still answers, from the upstream only.
func (w *WhoAmI) Close() {
	w.users.close()
	w.failures.close()
}

// ask sends one question when its turn comes and waits for the answer.
func (w *WhoAmI) ask(ctx context.Context, id authn.Identity, share inflight.ShareKey) (dated[*user.DefaultInfo], error) {
	return inTurn(ctx, w.turns, share, w.timeout, func(ctx context.Context) (*user.DefaultInfo, error) {
		return w.post(ctx, id)
	})
}

// post makes the request and judges the response.
func (w *WhoAmI) post(ctx context.Context, id authn.Identity) (*user.DefaultInfo, error) {
	question := &authenticationv1.SelfSubjectReview{TypeMeta: selfSubjectReviewType()}
	code, _, answer, err := post(ctx, w.send, id, w.endpoint, question, maxWhoAmIBody)
	switch {
	case code != 0 && code != http.StatusCreated && code != http.StatusOK:
		return nil, fmt.Errorf("the upstream answered the question who a caller is with status %d", code)
	case err != nil:
		return nil, fmt.Errorf("the question who a caller is: %w", err)
	}
	return readWhoAmI(answer)
}

func selfSubjectReviewType() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"}
}

// readWhoAmI reads the user from a SelfSubjectReview.
func readWhoAmI(answer []byte) (*user.DefaultInfo, error) {
	var problem string
	var review authenticationv1.SelfSubjectReview
	switch {
	case len(answer) > maxWhoAmIBody:
		problem = "too long"
	case utiljson.Unmarshal(answer, &review) != nil:
		problem = "not JSON of the expected form"
	case review.TypeMeta != selfSubjectReviewType():
		problem = "another kind of object"
	case review.Status.UserInfo.Username == "":
		problem = "without a name"
	}
	if problem != "" {
		return nil, fmt.Errorf("the upstream's answer who a caller is cannot be used: it is %s", problem)
	}
	info := review.Status.UserInfo
	u := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups}
	if len(info.Extra) > 0 {
		u.Extra = make(map[string][]string, len(info.Extra))
		for key, values := range info.Extra {
			u.Extra[key] = values
		}
	}
	return u, nil
}

// Recognise is User for requests that can do without the answer: if the upstream does not say who
// the caller is, this is remembered too, and the upstream is not asked again for the TTL. So there
// is at most one question for each caller and TTL, even if it fails. Users whom listproxy has
// verified itself are known without asking.
func (w *WhoAmI) Recognise(ctx context.Context, id authn.Identity, share inflight.ShareKey) (user.Info, error) {
	if u := id.Impersonated(); u != nil {
		return u, nil
	}
	who := id.Key()
	key := string(who[:])
	if why, failed := w.failures.get(key, time.Now()); failed {
		return nil, why
	}
	asked := time.Now()
	u, err := w.User(ctx, id, share)
	if err != nil {
		if ctx.Err() == nil && w.ttl > 0 {
			w.failures.add(key, err, 1, validity{asked, w.ttl}, time.Now())
		}
		return nil, err
	}
	return u, nil
}
