package oracle

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
)

var continueToken = regexp.MustCompile(`"continue":"([^"]+)"`)

// Plain is a list in JSON with its token in the one of its two forms that has no slash:
// kube-apiserver writes one or the other, depending on whether its cache or etcd answers. What has
// no token stays as it is.
func Plain(list []byte) []byte {
	return continueToken.ReplaceAllFunc(list, func(token []byte) []byte {
		decoded, err := base64.RawURLEncoding.DecodeString(string(continueToken.FindSubmatch(token)[1]))
		if err != nil {
			return token
		}
		return bytes.Replace(decoded, []byte(`"start":"/`), []byte(`"start":"`), 1)
	})
}

// Difference shows the surroundings of the first byte in which two bodies differ.
func Difference(got, want []byte) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	around := func(b []byte) []byte { return b[min(len(b), max(0, i-150)):min(len(b), i+150)] }
	return fmt.Sprintf("%d bytes, not %d; from byte %d on:\n  %q\n  %q", len(got), len(want), i, around(got), around(want))
}
