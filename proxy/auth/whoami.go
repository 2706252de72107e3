package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	whoAmIPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

	// maxWhoAmIBody bounds the answer to the question who a caller is, in bytes: more than a thousand
	// groups.
	maxWhoAmIBody = 64 << 10
	maxUsers      = 4 << 10
)

var errNoIdentity = errors.New("the caller has no credentials to ask with")

// WhoAmI learns who callers are, for the audit log only: what a caller may see is the Authorizer's to
// say. For a token only the upstream knows, so it is asked with a SelfSubjectReview
// (authentication.k8s.io/v1, since Kubernetes 1.28) sent as the caller. Everyone who is authenticated
// may create such reviews (the ClusterRole system:basic-user).
//
// Answers are remembered by the key of the caller's identity, never by a credential, and used
// within the TTL only. It is safe for concurrent use.
type WhoAmI struct {
	send      SendAs
	endpoint  string
	questions *questions[*user.DefaultInfo] // the users are shared and must not be changed
}

// NewWhoAmI returns a WhoAmI that asks the API server at base, through send. The TTL should be no
// longer than that of the reviews.
func NewWhoAmI(send SendAs, base *url.URL, cfg ReviewConfig) *WhoAmI {
	endpoint := base.JoinPath(whoAmIPath)
	endpoint.User = nil
	return &WhoAmI{send: send, endpoint: endpoint.String(), questions: newQuestions[*user.DefaultInfo](cfg, maxUsers)}
}

// User returns the user that the upstream takes the caller for. The caller of User must not change
// the user. An error means that the upstream could not be asked or did not say; it holds nothing of
// the credential and nothing of the user.
func (w *WhoAmI) User(ctx context.Context, who *Caller) (user.Info, error) {
	if !who.Identity.Known() {
		return nil, errNoIdentity
	}
	key := who.Identity.Key()
	learned, err := w.questions.get(ctx, who, string(key[:]), scope{}, func(ctx context.Context) (*user.DefaultInfo, error) {
		return w.post(ctx, who.Identity)
	})
	if err != nil {
		return nil, err
	}
	return learned.value, nil
}

// post makes the request and judges the response.
func (w *WhoAmI) post(ctx context.Context, id Identity) (*user.DefaultInfo, error) {
	question := &authenticationv1.SelfSubjectReview{TypeMeta: selfSubjectReviewType()}
	code, _, answer, err := sendQuestion(ctx, w.send, id, w.endpoint, question, maxWhoAmIBody)
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
	var review authenticationv1.SelfSubjectReview
	if err := utiljson.Unmarshal(answer, &review); err != nil || review.TypeMeta != selfSubjectReviewType() || review.Status.UserInfo.Username == "" {
		return nil, errors.New("the upstream's answer who a caller is cannot be used: it is no SelfSubjectReview with a name")
	}
	info := review.Status.UserInfo
	u := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string][]string{}}
	for key, values := range info.Extra {
		u.Extra[key] = values
	}
	return u, nil
}
