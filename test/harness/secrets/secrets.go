// Package secrets knows what no process of a test suite may ever emit, and finds it.
//
// Whoever makes a secret adds it: package controlplane all tokens, keys and names of its users,
// package harness what it gives to a process and to its clients. What nobody added is found if
// it looks like a secret: bearer tokens, service account tokens, private keys.
package secrets

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	// part is how many characters of either end of a long secret give it away already: a token that
	// is cut off in a log is still half a token.
	part = 12
	// leastLength of a credential: a shorter one would be found everywhere.
	leastLength = 8
	// shown is how much of a line an error has.
	shown = 300
	mask  = "[SECRET]"
)

// Registry is a set of secrets. The zero value has none. It is safe for concurrent use.
type Registry struct {
	mu    sync.Mutex
	forms map[string]form // by text
}

// form is one way in which a secret could be written.
type form struct {
	secret   string // its name
	identity bool
}

// Suite has the secrets of this process, which is a test of one package: secrets are made in many
// places, and must be known to whoever ends a process.
var Suite Registry

// Add adds a credential: a token or a password. The name is what it is called where it was found.
// An empty value is none.
func (r *Registry) Add(name, value string) {
	if value == "" {
		return
	}
	if len(value) < leastLength {
		panic("secrets: " + name + " is too short to be told from other text")
	}
	r.add(form{secret: name}, value, url.QueryEscape(value), hex.EncodeToString([]byte(value)))
	if len(value) >= 2*part {
		r.add(form{secret: name}, value[:part], value[len(value)-part:])
	}
	r.add(form{secret: name}, base64Forms(value)...)
}

// AddKey adds the private keys in a PEM, line by line. Anything else in it is public.
func (r *Registry) AddKey(name string, pem []byte) {
	private := false
	for line := range strings.Lines(string(pem)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "-----"):
			private = strings.HasPrefix(line, "-----BEGIN") && strings.HasSuffix(line, "PRIVATE KEY-----")
		// The first line of a short key is mostly its algorithm; a short last line says little.
		case private && len(line) > 2*part:
			r.add(form{secret: name}, line, line[len(line)-2*part:])
			r.add(form{secret: name}, base64Forms(line)...)
		}
	}
}

// AddIdentity adds the name of somebody whom the proxy impersonates. An audit log is there to say
// who did what: its lines may have it. Names are found only as whole words.
func (r *Registry) AddIdentity(name, value string) {
	r.add(form{secret: name, identity: true}, value)
}

func (r *Registry) add(f form, texts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forms == nil {
		r.forms = map[string]form{}
	}
	for _, text := range texts {
		if len(text) < 2 {
			panic("secrets: " + f.secret + " is too short to be looked for")
		}
		if _, known := r.forms[text]; !known {
			r.forms[text] = f // whoever made it knows best what it is
		}
	}
}

// base64Forms are what a text is in base64, wherever in a longer one it stands: without the
// characters at its ends that hold bits of its neighbours.
func base64Forms(value string) []string {
	var forms []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			encoded := encoding.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
			forms = append(forms, encoded[(before*8+5)/6:(before+len(value))*8/6])
		}
	}
	return forms
}

// patterns are what looks like a secret, whoever made it, by the words that it begins with, in any
// case.
var patterns = map[string]pattern{
	"eyJ":        {"a JSON web token", regexp.MustCompile(`eyJ[\w-]{8,}\.eyJ[\w-]{8,}`)},
	"bearer":     authorization,
	"basic":      authorization,
	"negotiate":  authorization,
	"-----BEGIN": {"a private key", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`)},
}

type pattern struct {
	name string
	is   *regexp.Regexp
}

var authorization = pattern{
	"the value of an Authorization header",
	regexp.MustCompile(`(?i)\b(?:bearer|basic|negotiate)(?: |\+|%20)[\w.~+/-]{16,}=*`),
}

// auditLine begins the lines of an audit log.
var auditLine = regexp.MustCompile(`^\{"kind":"Event","apiVersion":"audit\.k8s\.io/`)

// Leak is a secret that was emitted.
type Leak struct {
	Secret string // its name
	Where  string
	Line   string // with all secrets masked
}

// Error implements error.
func (l Leak) Error() string {
	return fmt.Sprintf("%s was emitted in %s: %s", l.Secret, l.Where, l.Line)
}

// Search returns the secrets that text has, each once. where says what the text is.
func (r *Registry) Search(where, text string) []Leak {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string]Leak{}
	note := func(secret string, at int) {
		if _, already := found[secret]; !already {
			line := r.maskedLocked(lineAt(text, at))
			if len(line) > shown {
				line = line[:shown] + "…"
			}
			found[secret] = Leak{secret, where, line}
		}
	}
	for at, what := range occurrences(text, slices.AppendSeq(slices.Collect(maps.Keys(r.forms)), maps.Keys(patterns))...) {
		if p, is := patterns[what]; is {
			if p.is.MatchString(lineAt(text, at)) {
				note(p.name, at)
			}
			continue
		}
		f := r.forms[what]
		if text[at:at+len(what)] != what || f.identity && (!isWord(text, at, len(what)) || auditLine.MatchString(lineAt(text, at))) {
			continue
		}
		note(f.secret, at)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Leak) int { return cmp.Compare(a.Secret, b.Secret) })
}

// occurrences yields where which of the values begin in text, in upper or lower case. It reads the text
// once: a soak's log is hundreds of megabytes long, and there are hundreds of values.
func occurrences(text string, values ...string) iter.Seq2[int, string] {
	const lower = 'a' - 'A' // the bit that upper case lacks, as do other bytes, which look alike then
	begin := func(a, b byte) uint16 { return uint16(a|lower)<<8 | uint16(b|lower) }
	var byBegin [1 << 16][]string
	for _, value := range values {
		here := begin(value[0], value[1])
		byBegin[here] = append(byBegin[here], value)
	}
	return func(yield func(int, string) bool) {
		for at := 0; at+1 < len(text); at++ {
			for _, value := range byBegin[begin(text[at], text[at+1])] {
				if end := at + len(value); end <= len(text) && strings.EqualFold(text[at:end], value) && !yield(at, value) {
					return
				}
			}
		}
	}
}

// isWord says whether neither neighbour of a part of text could belong to the same name.
func isWord(text string, at, size int) bool {
	part := func(i int) bool {
		if i < 0 || i >= len(text) {
			return false
		}
		c := text[i]
		return c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	return !part(at-1) && !part(at+size)
}

func lineAt(text string, at int) string {
	begin := strings.LastIndexByte(text[:at], '\n') + 1
	end := strings.IndexByte(text[at:], '\n')
	if end < 0 {
		return text[begin:]
	}
	return text[begin : at+end]
}

// Masked is text with all secrets masked, for those who print what a process has written.
func (r *Registry) Masked(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maskedLocked(text)
}

// maskedLocked is text without any secret. Longer forms go first, or the shorter ones would
// leave the rest of them.
func (r *Registry) maskedLocked(text string) string {
	longest := func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }
	for _, value := range slices.SortedFunc(maps.Keys(r.forms), longest) {
		text = strings.ReplaceAll(text, value, mask)
	}
	for _, p := range patterns {
		text = p.is.ReplaceAllString(text, mask)
	}
	return text
}
