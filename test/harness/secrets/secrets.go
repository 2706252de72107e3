// Package secrets finds secrets in what processes of a test suite emit.
//
// Code that makes a secret adds it: package controlplane the tokens, keys and names of its users, and package harness the
// credentials of a process and its clients. Bearer tokens, service account tokens and private keys are found even if nobody
// added them.
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
	// partLength is the number of characters at either end of a long secret that count as the secret: half a token in a log
	// is a leak.
	partLength = 12
	// minLength is the length of the shortest credential. A shorter one would be found everywhere.
	minLength = 8
	// maxShown is the number of bytes of a line in an error.
	maxShown = 300
	mask     = "[SECRET]"
)

// Registry is a set of secrets, each with the texts by which it is found. The zero value is empty. Safe for concurrent use.
type Registry struct {
	mu    sync.Mutex
	forms map[string]form // by text
}

// form says which secret a text gives away. A secret has several texts: its value as it is, in base64 and in hex, and parts of
// it.
type form struct {
	secret   string // the secret's name
	identity bool   // the secret is the name of a user ([Registry.AddIdentity])
}

// Suite has the secrets of this test process. Many packages add secrets, and all are searched for at the end of each
// listproxy.
var Suite Registry

// Add adds a credential, a token or a password, with its name for errors. An empty value is ignored.
func (r *Registry) Add(name, value string) {
	if value == "" {
		return
	}
	if len(value) < minLength {
		panic("secrets: " + name + " is too short to be told from other text")
	}
	r.add(form{secret: name}, value, url.QueryEscape(value), hex.EncodeToString([]byte(value)))
	if len(value) >= 2*partLength {
		r.add(form{secret: name}, value[:partLength], value[len(value)-partLength:])
	}
	r.add(form{secret: name}, base64Forms(value)...)
}

// AddKey adds the private keys in a PEM, line by line. It ignores other blocks of the PEM, such as certificates, which are
// public.
func (r *Registry) AddKey(name string, pem []byte) {
	private := false
	for line := range strings.Lines(string(pem)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "-----"):
			private = strings.HasPrefix(line, "-----BEGIN") && strings.HasSuffix(line, "PRIVATE KEY-----")
		// A short last line says little. The first line of a short key is mostly the name of its algorithm, so only its end
		// counts on its own.
		case private && len(line) > 2*partLength:
			r.add(form{secret: name}, line, line[len(line)-2*partLength:])
			r.add(form{secret: name}, base64Forms(line)...)
		}
	}
}

// AddIdentity adds the name of a user whom listproxy impersonates. It is found as a whole word only, and not in lines of an
// audit log.
func (r *Registry) AddIdentity(name, value string) {
	r.add(form{secret: name, identity: true}, value)
}

// add adds the texts of one form.
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
			r.forms[text] = f // the first name stays
		}
	}
}

// base64Forms returns the texts by which value is found inside the base64 of a longer text. Base64 writes 3 bytes as 4
// characters, so value looks different after 0, 1 or 2 other bytes. The first and the last character may also have bits of
// neighbouring bytes. Such a character is left out.
func base64Forms(value string) []string {
	var forms []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 { // the number of bytes before value
			encoded := encoding.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
			const byteBits, characterBits = 8, 6
			begin := (before*byteBits + characterBits - 1) / characterBits // the first character that has bits of value only
			end := (before + len(value)) * byteBits / characterBits        // behind the last such character
			forms = append(forms, encoded[begin:end])
		}
	}
	return forms
}

// patterns match secrets that nobody added. The keys are the first letters of such a secret, in any case: only there is the
// pattern tried.
var patterns = map[string]pattern{
	"eyJ":        {"a JSON web token", regexp.MustCompile(`eyJ[\w-]{8,}\.eyJ[\w-]{8,}`)},
	"bearer":     authorization,
	"basic":      authorization,
	"negotiate":  authorization,
	"-----BEGIN": {"a private key", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`)},
}

type pattern struct {
	name       string
	expression *regexp.Regexp
}

var authorization = pattern{
	"the value of an Authorization header",
	regexp.MustCompile(`(?i)\b(?:bearer|basic|negotiate)(?: |\+|%20)[\w.~+/-]{16,}=*`),
}

// auditLine matches the beginning of a line of an audit log.
var auditLine = regexp.MustCompile(`^\{"kind":"Event","apiVersion":"audit\.k8s\.io/`)

// Leak is a secret that was emitted.
type Leak struct {
	Secret string // its name
	Where  string
	Line   string // with all secrets masked
}

// Error implements [error].
func (l Leak) Error() string {
	return fmt.Sprintf("%s was emitted in %s: %s", l.Secret, l.Where, l.Line)
}

// Search returns a leak for each secret in text. where names the text in errors.
func (r *Registry) Search(where, text string) []Leak {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string]Leak{}
	note := func(secret string, at int) {
		if _, already := found[secret]; !already {
			line := r.maskedLocked(lineAt(text, at))
			if len(line) > maxShown {
				line = line[:maxShown] + "…"
			}
			found[secret] = Leak{Secret: secret, Where: where, Line: line}
		}
	}
	values := slices.AppendSeq(slices.Collect(maps.Keys(r.forms)), maps.Keys(patterns))
	for at, value := range occurrences(text, values...) {
		p, isPattern := patterns[value]
		switch {
		case isPattern && p.expression.MatchString(lineAt(text, at)):
			note(p.name, at)
		case !isPattern && r.forms[value].isAt(text, at, value):
			note(r.forms[value].secret, at)
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Leak) int { return cmp.Compare(a.Secret, b.Secret) })
}

// isAt reports whether the value of the form is at a position of text, in the same case. An identity must be a word of its own,
// and does not count in an audit log.
func (f form) isAt(text string, at int, value string) bool {
	if text[at:at+len(value)] != value {
		return false
	}
	return !f.identity || (isWord(text, at, len(value)) && !auditLine.MatchString(lineAt(text, at)))
}

// occurrences yields each position in text at which one of the values begins, and that value. Upper and lower case do not
// matter. It reads the text once, since the log of a soak has hundreds of megabytes, and there are hundreds of values: it
// groups the values by their first two bytes, and compares at each position only those values that begin with the two bytes
// there.
func occurrences(text string, values ...string) iter.Seq2[int, string] {
	const lower = 'a' - 'A' // the bit that upper case lacks; with it, some other bytes look alike, too, so EqualFold decides
	begin := func(first, second byte) uint16 { return uint16(first|lower)<<8 | uint16(second|lower) }
	var byBegin [1 << 16][]string
	for _, value := range values {
		b := begin(value[0], value[1])
		byBegin[b] = append(byBegin[b], value)
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

// isWord reports whether the size bytes of text from at are a whole name, and not a part of a longer one: certuser is no whole
// name in certuser-2.
func isWord(text string, at, size int) bool {
	isPart := func(i int) bool {
		if i < 0 || i >= len(text) {
			return false
		}
		c := text[i]
		return c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	return !isPart(at-1) && !isPart(at+size)
}

// lineAt returns the line of text that has a position.
func lineAt(text string, at int) string {
	begin := strings.LastIndexByte(text[:at], '\n') + 1
	end := strings.IndexByte(text[at:], '\n')
	if end < 0 {
		return text[begin:]
	}
	return text[begin : at+end]
}

// Masked returns text with all secrets masked.
func (r *Registry) Masked(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maskedLocked(text)
}

// maskedLocked is Masked. The caller holds mu. Longer forms are replaced first, since a shorter one may be a part of a longer.
func (r *Registry) maskedLocked(text string) string {
	longest := func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }
	for _, value := range slices.SortedFunc(maps.Keys(r.forms), longest) {
		text = strings.ReplaceAll(text, value, mask)
	}
	for _, p := range patterns {
		text = p.expression.ReplaceAllString(text, mask)
	}
	return text
}
