package policy

import "k8s.io/apiserver/pkg/storage"

// EncodeContinue returns the continue token that kube-apiserver's cache sends with a page if the next page begins at the key
// start. The revision must fit int64, as every etcd revision does.
//
// start is a key relative to the scope of the list, without a leading slash: "team-a/web" for a list of all pods, "web" for one
// of the pods in team-a. Usually it is the last key of the page, followed by a zero byte. It must be valid UTF-8, since JSON
// replaces other bytes.
func EncodeContinue(revision uint64, start string) string {
	return encodeToken(int64(revision), "/"+start) // #nosec G115 -- see above
}

// DecodeContinue parses a continue token of kube-apiserver. start is as for [EncodeContinue]. The revision is never 0. A
// negative revision means the newest state: kube-apiserver sends -1 if the revision of a list was compacted.
//
// isCanonical is false, and the other results are zero, in these cases:
//
//   - The token cannot be parsed.
//   - The key has a segment "..", "." or "", which could lead out of the scope.
//   - kube-apiserver would have written the token differently: JSON and base64 have many spellings for one value.
func DecodeContinue(token string) (start string, revision int64, isCanonical bool) {
	start, revision, err := storage.DecodeContinue(token, "")
	if err != nil || start == "" {
		return "", 0, false
	}
	// kube-apiserver's cache writes the key with a leading slash, its reads of etcd without.
	if token != encodeToken(revision, "/"+start) && token != encodeToken(revision, start) {
		return "", 0, false
	}
	return start, revision, true
}

// encodeToken returns the token with exactly this start key.
func encodeToken(revision int64, start string) string {
	const prefix = "/" // storage.EncodeContinue removes it from the key, and fails only if the key lacks it
	token, _ := storage.EncodeContinue(prefix+start, prefix, revision)
	return token
}
