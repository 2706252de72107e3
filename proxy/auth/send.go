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

// SendAs is a function that sends r, a request of listproxy's making, as the caller id, and returns the upstream's response. r
// must have no credentials: the function adds the caller's own. If listproxy impersonates the caller, the function adds
// listproxy's own credentials instead, and Impersonate-* headers for exactly this caller. It follows no redirects. Its errors
// contain no credential.
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

// maxReviewBody bounds the body of the response to a review, in bytes. The body repeats the review with its selectors, or lists
// the caller's groups.
const maxReviewBody = 1 << 20

// noResponse is the status code that postReview returns if no response came.
const noResponse = 0

// postReview sends a review to the upstream as a caller, decodes the body of the response into decoded, which is a pointer, and
// returns the status code and the header of the response. These are its results:
//
//	                             code          header   err
//	no response came             noResponse    nil      not nil
//	the body cannot be decoded   such as 403   set      not nil
//	the body was decoded         such as 201   set      nil
//
// The body of an error, such as a 403, need not be JSON. So callers must look at code before err.
func postReview(
	ctx context.Context, send SendAs, id Identity, endpoint string, review, decoded any,
) (code int, header http.Header, err error) {
	payload, err := utiljson.Marshal(review)
	if err != nil {
		return noResponse, nil, fmt.Errorf("write the question: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(payload))
	if err != nil {
		return noResponse, nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "listproxy")
	resp, err := send(ctx, id, req)
	if err != nil {
		return noResponse, nil, fmt.Errorf("ask the upstream: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReviewBody+1))
	if err != nil {
		return resp.StatusCode, resp.Header, fmt.Errorf("read the answer: %w", err)
	}
	err = utiljson.Unmarshal(body, decoded)
	if err != nil || len(body) > maxReviewBody {
		err = errors.New("the answer is not JSON, or too long") // Unmarshal's own error may quote the body
	}
	return resp.StatusCode, resp.Header, err
}

// isError reports whether a response came, and had another status code than 200 or 201. code is from postReview.
func isError(code int) bool {
	return code != noResponse && code != http.StatusOK && code != http.StatusCreated
}
