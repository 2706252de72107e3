package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// SendAs sends r, which listproxy itself has made, as the caller id, and returns the upstream's response. r must have no
// credentials: SendAs adds the caller's own. If listproxy impersonates the caller, SendAs adds listproxy's own credentials, and
// Impersonate-* headers for exactly this caller. It follows no redirects. Its errors contain no credential.
type SendAs func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error)

// WithOwnAccount returns a SendAs that sends requests of listproxy's own account with the credentials of cfg, and all other
// requests through send.
func WithOwnAccount(send SendAs, cfg *rest.Config) (SendAs, error) {
	client, err := kubehttp.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for listproxy's own rights: %w", err)
	}
	return func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error) {
		if id.IsOwn() {
			return client.Do(r)
		}
		return send(ctx, id, r)
	}, nil
}

// postReview sends a review to the upstream as a caller, and returns the reply. There are two kinds of error:
//
//	there was no reply                                  the code of the rawReply is noReply
//	its body broke off, or has more than maxBody bytes  only the code and the header of the rawReply are valid
func postReview(
	ctx context.Context, send SendAs, id Identity, endpoint string, review any, maxBody int64,
) (rawReply, error) {
	payload, err := utiljson.Marshal(review)
	if err != nil {
		return rawReply{}, fmt.Errorf("write the question: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(payload))
	if err != nil {
		return rawReply{}, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "listproxy")
	resp, err := send(ctx, id, req)
	if err != nil {
		return rawReply{}, fmt.Errorf("ask the upstream: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		err = fmt.Errorf("read the answer: %w", err)
	case int64(len(body)) > maxBody:
		err = errors.New("the answer is too long")
	}
	return rawReply{code: resp.StatusCode, header: resp.Header, body: body}, err
}

// rawReply is the upstream's reply to a review.
type rawReply struct {
	code   int // the status, or noReply
	header http.Header
	body   []byte
}

// noReply is the code of a rawReply if the upstream has not answered.
const noReply = 0

// isError reports whether the upstream has answered with a status other than 200 and 201.
func (r *rawReply) isError() bool {
	return r.code != noReply && r.code != http.StatusOK && r.code != http.StatusCreated
}
