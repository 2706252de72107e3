package feed

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// verify holds an answer of listproxy against the API server's. Of one that is no list, and was not
// forwarded, the code is compared. An error that is not poll.Wrong is of an API server that gives no
// list to compare with just now.
func (c *cluster) verify(ctx context.Context, path string, q url.Values, a ask.Answer) error {
	switch {
	case a.Code == http.StatusOK && !q.Has("limit") && !q.Has("continue"):
		q = exactly(a.Meta().ResourceVersion)
	case a.Code != http.StatusOK && !a.FromMemory():
		return nil
	}
	want, err := c.directly(ctx, path+"?"+q.Encode())
	if err != nil {
		return err
	}
	if want.Code != a.Code || a.Code == http.StatusOK && plain(want.Body) != plain(a.Body) {
		return poll.Wrong(fmt.Sprintf("%s?%s: listproxy and the API server differ\n got: %s\nwant: %s", path, q.Encode(), a, want))
	}
	for _, name := range []string{"Content-Type", "Warning", "Cache-Control"} {
		if fmt.Sprint(a.Header.Values(name)) != fmt.Sprint(want.Header.Values(name)) {
			return poll.Wrong(fmt.Sprintf("%s?%s: %s is %q, and %q directly", path, q.Encode(), name, a.Header.Values(name), want.Header.Values(name)))
		}
	}
	if n, m := len(a.Header.Values("Audit-Id")), len(want.Header.Values("Audit-Id")); n != m {
		return poll.Wrong(fmt.Sprintf("%s?%s: %d Audit-Id headers, and %d directly", path, q.Encode(), n, m))
	}
	return nil
}

// directly asks the API server for a list. That it cannot give one now is an error: it has too much to do,
// or is starting and has not all its paths yet.
func (c *cluster) directly(ctx context.Context, target string) (ask.Answer, error) {
	a, err := c.direct.Get(ctx, target)
	if err != nil {
		return a, err
	}
	if a.Code == http.StatusNotFound {
		ready, err := c.direct.Get(ctx, "/readyz")
		if err != nil {
			return a, err
		}
		if ready.Code != http.StatusOK {
			return a, fmt.Errorf("an API server that is not ready says %s", a)
		}
		if a, err = c.direct.Get(ctx, target); err != nil {
			return a, err
		}
	}
	if a.Code == http.StatusTooManyRequests || a.Code >= http.StatusInternalServerError {
		return a, fmt.Errorf("directly: %s", a)
	}
	return a, nil
}

var continueToken = regexp.MustCompile(`"continue":"([^"]+)"`)

// plain is a list with its token in the one of its two forms that has no slash: the API server
// writes one or the other, depending on whether its cache or etcd answers.
func plain(body []byte) string {
	return string(continueToken.ReplaceAllFunc(body, func(token []byte) []byte {
		decoded, err := base64.RawURLEncoding.DecodeString(string(continueToken.FindSubmatch(token)[1]))
		if err != nil {
			return token
		}
		return bytes.Replace(decoded, []byte(`"start":"/`), []byte(`"start":"`), 1)
	}))
}
