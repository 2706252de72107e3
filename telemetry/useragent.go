package telemetry

import (
	"regexp"
	"strings"
)

const (
	// MaxUserAgent is how much of a User-Agent is looked at, in bytes.
	MaxUserAgent = 256
	// maxUserAgentWord is longer than the names of programs with their versions, in bytes.
	maxUserAgentWord = 64
	// noUserAgent stands for a User-Agent that says nothing.
	noUserAgent = "(none)"
)

// longRun finds what is too long and too mixed for a word: tokens without any other mark.
var longRun = regexp.MustCompile(`[A-Za-z0-9_+=]{20,}`)

// UserAgent is the beginning of a User-Agent header, up to the first space: the program and its
// version. It is what a client chose to write. So it has no characters but those of a token of RFC
// 9110 and slashes, is at most 64 bytes long, and [Masked] if any of the header looks like a
// credential or it is longer: it errs on the side of hiding.
func UserAgent(header string) string {
	cut := len(header) > MaxUserAgent
	if cut {
		header = header[:MaxUserAgent]
	}
	word, _, spaced := strings.Cut(strings.TrimSpace(MaskText(header)), " ")
	switch {
	case word == "":
		return noUserAgent
	case strings.Contains(word, Masked), len(word) > maxUserAgentWord, cut && !spaced, looksRandom(word), LooksSecret(word),
		strings.ContainsFunc(word, func(r rune) bool { return !isTokenOrSlash(r) }):
		return Masked
	}
	return word
}

// looksRandom reports whether a word has a long run of both letters and digits. Programs' names have
// none, so it is stricter than [LooksSecret].
func looksRandom(word string) bool {
	for _, run := range longRun.FindAllString(word, -1) {
		if strings.ContainsAny(run, "0123456789") && strings.Trim(run, "0123456789") != "" {
			return true
		}
	}
	return false
}

// isTokenOrSlash reports whether r may be in a token (RFC 9110, 5.6.2), or parts two of them.
func isTokenOrSlash(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~/", r)
}
