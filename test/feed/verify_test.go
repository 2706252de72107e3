package feed

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
)

// verify holds an answer of listproxy against the API server's.
func (c *cluster) verify(ctx context.Context, path string, q url.Values, a answer) error {
	if a.code != http.StatusOK {
		return nil
	}
	if !q.Has("limit") && !q.Has("continue") {
		q = exactly(a.meta().ResourceVersion)
	}
	want, err := c.direct.get(ctx, path+"?"+q.Encode())
	if err != nil {
		return err
	}
	if want.code != a.code || plain(want.body) != plain(a.body) {
		return wrongError{fmt.Sprintf("%s?%s: listproxy and the API server differ\n got: %s\nwant: %s", path, q.Encode(), a, want)}
	}
	for _, name := range []string{"Content-Type", "Warning", "Cache-Control"} {
		if fmt.Sprint(a.header.Values(name)) != fmt.Sprint(want.header.Values(name)) {
			return wrongError{fmt.Sprintf("%s?%s: %s is %q, and %q directly", path, q.Encode(), name, a.header.Values(name), want.header.Values(name))}
		}
	}
	if n, m := len(a.header.Values("Audit-Id")), len(want.header.Values("Audit-Id")); n != m {
		return wrongError{fmt.Sprintf("%s?%s: %d Audit-Id headers, and %d directly", path, q.Encode(), n, m)}
	}
	return nil
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
