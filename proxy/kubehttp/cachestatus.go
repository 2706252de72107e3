package kubehttp

import "strings"

// CacheStatusHeader says where an answer came from (RFC 9211).
const CacheStatusHeader = "Cache-Status"

// ReadCacheStatus reads a value of the header as listproxy writes it: whether the answer came from
// memory, and of what kind it is, or why it did not.
func ReadCacheStatus(value string) (hit bool, detail string) {
	for parameter := range strings.SplitSeq(value, ";") {
		parameter = strings.TrimSpace(parameter)
		hit = hit || parameter == "hit"
		if word, ok := strings.CutPrefix(parameter, "detail="); ok {
			detail = word
		}
	}
	return hit, detail
}
