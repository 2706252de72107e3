package policy

import (
	"encoding/base64"
	"encoding/json"
	"path"
	"strings"
)

// tokenVersion is the only version of continue tokens that Kubernetes has.
const tokenVersion = "meta.k8s.io/v1"

// continueToken is kube-apiserver's continue token. It is a public format: the
// names and the order of the fields are part of it.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

// EncodeContinue returns the continue token that kube-apiserver's cache sends with a page at this revision if the next
// page begins at start. That is a key relative to the scope of the request, without its leading slash: usually the last
// key of the page followed by a zero byte.
//
// The revision must fit int64, as every etcd revision does. Keys must be valid UTF-8, since JSON replaces other bytes.
func EncodeContinue(revision uint64, start string) string {
	return encodeToken(int64(revision), "/"+start) // #nosec G115 -- see above
}

// DecodeContinue reads a continue token. It returns the start key relative to the scope, without a leading slash. The
// revision may be zero or negative; -1 means the newest state.
//
// ok is false unless kube-apiserver writes exactly these bytes: with a leading slash, as its cache does, or without, as
// its reads of etcd do. It is also false if the start key has "..", "." or empty segments, since it could lead out of
// the scope.
func DecodeContinue(token string) (revision int64, start string, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, "", false
	}
	var t continueToken
	if err := json.Unmarshal(data, &t); err != nil {
		return 0, "", false
	}
	start = strings.TrimPrefix(t.Start, "/")
	if t.Version != tokenVersion || start == "" || path.Clean("/"+start) != "/"+start {
		return 0, "", false
	}
	// JSON and base64 both have many spellings for one value.
	if encodeToken(t.Revision, t.Start) != token {
		return 0, "", false
	}
	return t.Revision, start, true
}

// encodeToken writes the token with the start key exactly as given.
func encodeToken(revision int64, start string) string {
	// Strings and numbers can always be encoded.
	data, _ := json.Marshal(continueToken{Version: tokenVersion, Revision: revision, Start: start})
	return base64.RawURLEncoding.EncodeToString(data)
}
