package hop

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// body changes the revisions in a body of the upstream, an object or a list, and adds unknown fields.
func (o Odd) body(contentType string, b []byte, change func(string) string) []byte {
	if strings.HasPrefix(contentType, ask.Protobuf) {
		return o.inProtobuf(b, change)
	}
	b = within(within(b, inObjects, change), tokens, insideToken(change))
	if bytes.Contains(b, []byte("resource version: ")) {
		b = within(b, inMessages, change)
	}
	if o.UnknownFields {
		b = beginOfMetadata.ReplaceAllFunc(b, func(found []byte) []byte {
			if first := string(beginOfMetadata.FindSubmatch(found)[3]); first == "resourceVersion" || first == "continue" {
				return found // metadata of a list or a bookmark
			}
			return beginOfMetadata.ReplaceAll(found, []byte(`"metadata":${1}{$2"future":${1}true,$2"$3`))
		})
	}
	return b
}

// The places of revisions, which are the second of three groups. A continue token is base64, with a revision inside. Expressions
// for long bodies begin with a word, since package regexp finds such places fast.
var (
	inQueries  = regexp.MustCompile(`((?:^|&)resourceVersion=)(\d+)()`)
	inObjects  = regexp.MustCompile(`(resourceVersion"?: ?")(\d+)(")`)
	inMessages = regexp.MustCompile(`(resource version: |current: |too old resource version: \d+ \()(\d+)()`)
	inTokens   = regexp.MustCompile(`("rv":)(\d+)()`)
	tokens     = regexp.MustCompile(`(continue(?:=|"?: ?"?))([\w-]{8,})()`)
)

// beginOfMetadata matches metadata up to the name of the first member, which is the third group. The first and second are the
// white space before the brace and behind it.
var beginOfMetadata = regexp.MustCompile(`"metadata":( ?)\{(\s*)"(\w+)`)

// within changes the second group at each place.
func within(b []byte, place *regexp.Regexp, change func(string) string) []byte {
	return place.ReplaceAllFunc(b, func(found []byte) []byte {
		parts := place.FindSubmatch(found)
		return []byte(string(parts[1]) + change(string(parts[2])) + string(parts[3]))
	})
}

// insideToken returns a function that changes the revision inside a continue token.
func insideToken(change func(string) string) func(string) string {
	return func(text string) string {
		read, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return text
		}
		return base64.RawURLEncoding.EncodeToString(within(read, inTokens, change))
	}
}

// The numbers of protobuf fields: of every kind, of a list, of a Status, of ListMeta and of ObjectMeta.
const (
	metadataField       = 1
	itemsField          = 2
	messageField        = 3
	listRevisionField   = 2
	listContinueField   = 3
	objectRevisionField = 6
	unknownField        = 1000 // no kind has it
)

// inProtobuf is body for an object or a list in protobuf.
func (o Odd) inProtobuf(b []byte, change func(string) string) []byte {
	var u runtime.Unknown
	if !bytes.HasPrefix(b, magic) || u.Unmarshal(b[len(magic):]) != nil {
		return b
	}
	isList := strings.HasSuffix(u.Kind, "List")
	u.Raw = edit(u.Raw, func(field protowire.Number, content []byte) []byte {
		switch {
		case field == metadataField && (isList || u.Kind == "Status"):
			return editListMeta(content, change)
		case field == metadataField:
			return o.editObjectMeta(content, change)
		case field == itemsField && isList:
			return edit(content, func(field protowire.Number, content []byte) []byte {
				if field == metadataField {
					return o.editObjectMeta(content, change)
				}
				return content
			})
		case field == messageField && u.Kind == "Status":
			return within(content, inMessages, change)
		}
		return content
	})
	encoded, err := u.Marshal()
	must(err)
	return append(bytes.Clone(magic), encoded...)
}

// editListMeta changes the revision and the token of a ListMeta.
func editListMeta(meta []byte, change func(string) string) []byte {
	return edit(meta, func(field protowire.Number, content []byte) []byte {
		switch field {
		case listRevisionField:
			return []byte(change(string(content)))
		case listContinueField:
			return []byte(insideToken(change)(string(content)))
		}
		return content
	})
}

// editObjectMeta changes the revision of an ObjectMeta, and adds an unknown field.
func (o Odd) editObjectMeta(meta []byte, change func(string) string) []byte {
	meta = edit(meta, func(field protowire.Number, content []byte) []byte {
		if field == objectRevisionField {
			return []byte(change(string(content)))
		}
		return content
	})
	if o.UnknownFields {
		meta = protowire.AppendString(protowire.AppendTag(meta, unknownField, protowire.BytesType), "future")
	}
	return meta
}

// magic is the prefix of an object in protobuf.
var magic = []byte("k8s\x00")

// edit returns a protobuf message in which change has replaced the content of each length-delimited field.
func edit(message []byte, change func(protowire.Number, []byte) []byte) (edited []byte) {
	for len(message) > 0 {
		number, kind, tagLength := protowire.ConsumeTag(message)
		if tagLength < 0 {
			panic(fmt.Sprintf("not a message: %q", message))
		}
		valueLength := protowire.ConsumeFieldValue(number, kind, message[tagLength:])
		if valueLength < 0 {
			panic(fmt.Sprintf("not a message: %q", message))
		}
		fieldLength := tagLength + valueLength
		if kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(message[tagLength:])
			edited = append(edited, message[:tagLength]...)
			edited = protowire.AppendBytes(edited, change(number, content))
		} else {
			edited = append(edited, message[:fieldLength]...)
		}
		message = message[fieldLength:]
	}
	return edited
}
