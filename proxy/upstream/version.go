package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/version"
)

// maxAnswer is how many bytes of an answer [ask] reads.
const maxAnswer = 64 << 10

// ask reads an API server's answer at a path that is not a resource's. last: the connection is
// closed afterwards, so that the next question may reach another API server.
func ask(ctx context.Context, client *http.Client, at *url.URL, last bool) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return 0, nil, err
	}
	r.Close = last
	res, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, body, err
}

// AskVersion reads /version of the API server at base, and closes the connection. If the status is
// not 200, there is no error, but the version is not known.
func AskVersion(ctx context.Context, client *http.Client, base *url.URL) (said version.Info, status int, err error) {
	status, body, err := ask(ctx, client, base.JoinPath("version"), true)
	if err != nil || status != http.StatusOK {
		return said, status, err
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return version.Info{}, status, fmt.Errorf("/version: %w", err)
	}
	return said, status, nil
}
