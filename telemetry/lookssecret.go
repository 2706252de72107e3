package telemetry

import (
	"regexp"
	"slices"
	"strings"
)

const (
	// A run of at least randomLength letters and digits counts as random if it changes between letters and digits at
	// least randomChanges times. Tokens are longer, and names rarely change so often.
	randomLength  = 12
	randomChanges = 4
	// hexLength is the least length of a run of hexadecimal digits that counts as random, however seldom it changes.
	hexLength = 16
)

var (
	// uuidText finds UUIDs anywhere in a word.
	uuidText = regexp.MustCompile(`[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`)
	// bootstrapToken finds a possible bootstrap token (k8s.io/cluster-bootstrap, token/api) with the character before it.
	bootstrapToken = regexp.MustCompile(`(^|[^0-9A-Za-z._-])([0-9a-z]{6}\.[0-9a-z]{16})\b`)
	// alphanumeric finds runs of letters and digits.
	alphanumeric = regexp.MustCompile(`[0-9A-Za-z]+`)
)

const (
	decimals   = "0123456789"
	hexLetters = "abcdefABCDEF"
)

// LooksSecret reports whether a word that a client wrote looks like a credential: a bootstrap token, a
// JSON web token, a UUID, or a random string. It is for names of programs, resources and namespaces. Names of pods and
// ReplicaSets do not look secret, since their random ends are short. It cannot recognise a password that is a word.
func LooksSecret(word string) bool {
	if strings.HasPrefix(word, "eyJ") || uuidText.MatchString(word) || hasBootstrapToken(word) {
		return true
	}
	return slices.ContainsFunc(alphanumeric.FindAllString(word, -1), looksDrawn)
}

// looksDrawn reports whether a run of letters and digits was drawn at random, rather than composed.
func looksDrawn(run string) bool {
	if len(run) < randomLength || !mixed(run) {
		return false
	}
	if len(run) >= hexLength && strings.Trim(run, decimals+hexLetters) == "" {
		return true
	}
	changes := 0
	for i := 1; i < len(run); i++ {
		if isDecimal(run[i]) != isDecimal(run[i-1]) {
			changes++
		}
	}
	return changes >= randomChanges
}

// hasBootstrapToken reports whether there is a bootstrap token in text. Text without any digit, or
// without any letter, does not count: only one in a thousand of kubeadm's tokens is like that.
func hasBootstrapToken(text string) bool {
	for _, match := range bootstrapToken.FindAllStringSubmatch(text, -1) {
		if mixed(match[2]) {
			return true
		}
	}
	return false
}

// maskBootstrapTokens replaces bootstrap tokens in a line.
func maskBootstrapTokens(line []byte) []byte {
	return bootstrapToken.ReplaceAllFunc(line, func(found []byte) []byte {
		match := bootstrapToken.FindSubmatch(found)
		if !mixed(string(match[2])) {
			return found
		}
		return append(slices.Clip(match[1]), Masked...)
	})
}

// mixed reports whether a text has both digits and letters. The text has no other characters but dots.
func mixed(text string) bool {
	return strings.ContainsAny(text, decimals) && strings.Trim(text, decimals+".") != ""
}

func isDecimal(c byte) bool { return '0' <= c && c <= '9' }
