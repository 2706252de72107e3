package policy

import (
	"k8s.io/apiserver/pkg/storage"
)

// EncodeContinue returns the continue token that kube-apiserver's cache sends with a page at this revision if the next
// page begins at start. start is a key relative to the scope of the request, without a leading slash: usually the last
// key of the page, followed by a zero byte. It must be valid UTF-8, since JSON replaces other bytes. The revision must fit
// int64, as every etcd revision does.
func EncodeContinue(revision uint64, start string) string {
	return encodeToken(int64(revision), "/"+start) // #nosec G115 -- see above
}

// DecodeContinue parses a continue token. It returns the start key relative to the scope, without a leading slash, and the
// revision. The revision is never 0; a negative one stands for the newest state.
//
// ok is true only if encoding the result gives the same token again, since JSON and base64 have many spellings for one
// value. kube-apiserver writes the key in two ways: its cache with a leading slash, its reads of etcd without. ok is false
// if the key has a segment "..", "." or "", which could lead out of the scope.
func DecodeContinue(token string) (start string, revision int64, ok bool) {
	start, revision, err := storage.DecodeContinue(token, "")
	if err != nil || start == "" {
		return "", 0, false
	}
	if token != encodeToken(revision, "/"+start) && token != encodeToken(revision, start) {
		return "", 0, false
	}
	return start, revision, true
}

// encodeToken returns the token with the start key exactly as given.
func encodeToken(revision int64, start string) string {
	const prefix = "/" // storage.EncodeContinue needs a prefix, and removes it from the key
	token, _ := storage.EncodeContinue(prefix+start, prefix, revision)
	return token
}
