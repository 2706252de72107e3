package auth

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	whoAmIPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	// maxUsers is the number of callers whose user is remembered.
	maxUsers = 4 << 10
)

// WhoAmI asks the upstream which user a caller is, for the audit log only. It sends a SelfSubjectReview
// (authentication.k8s.io/v1, since Kubernetes 1.28) as the caller. Every authenticated user may create such a review (the
// ClusterRole system:basic-user). A WhoAmI remembers the users in the responses for [ReviewConfig].TTL. It is safe for
// concurrent use.
type WhoAmI struct {
	send     SendAs
	endpoint string
	cache    *reviewCache[*user.DefaultInfo]
}

// NewWhoAmI returns a WhoAmI that asks the API server at base, through send.
func NewWhoAmI(send SendAs, base *url.URL, cfg ReviewConfig) *WhoAmI {
	return &WhoAmI{
		send:     send,
		endpoint: base.JoinPath(whoAmIPath).String(),
		cache:    newReviewCache[*user.DefaultInfo](cfg, maxUsers),
	}
}

// User returns the user as whom the upstream authenticates the caller. The user is shared, and must not be changed. An error
// means that the caller is unidentified, or that the upstream has not named a user. The error contains neither the credential
// nor the user.
func (w *WhoAmI) User(ctx context.Context, who *Caller) (user.Info, error) {
	if !who.Identity.HasCredentials() {
		return nil, errors.New("the caller has no credentials to ask with")
	}
	key := who.Identity.Key()
	known, err := w.cache.recallOrAsk(ctx, question[*user.DefaultInfo]{
		who:    who,
		key:    string(key[:]),
		review: func(ctx context.Context) (*user.DefaultInfo, error) { return w.sendReview(ctx, who.Identity) },
	})
	if err != nil {
		return nil, err
	}
	return known.value, nil
}

// sendReview sends a SelfSubjectReview, and returns the user in the response.
func (w *WhoAmI) sendReview(ctx context.Context, id Identity) (*user.DefaultInfo, error) {
	review := &authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"},
	}
	response := &authenticationv1.SelfSubjectReview{}
	code, _, err := postReview(ctx, w.send, id, w.endpoint, review, response)
	switch {
	case isError(code):
		return nil, fmt.Errorf("the upstream answered a SelfSubjectReview with status %d", code)
	case err != nil:
		return nil, fmt.Errorf("the SelfSubjectReview: %w", err)
	case response.TypeMeta != review.TypeMeta || response.Status.UserInfo.Username == "":
		return nil, errors.New("the upstream's reply is not a SelfSubjectReview with the name of a user")
	}
	info := response.Status.UserInfo
	u := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string][]string{}}
	for key, values := range info.Extra {
		u.Extra[key] = values
	}
	return u, nil
}
