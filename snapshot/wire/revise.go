package wire

import (
	"slices"
	"strconv"
)

// ReviseItem returns a copy of a list's item with another resourceVersion (see [Encoding.Revise]).
func ReviseItem(encoding Encoding, item []byte, revision uint64) []byte {
	return slices.Concat(encoding.Revise(item, revision))
}

// Revise implements Encoding. For example, at revision 17:
//
//	before  {"metadata":{"name":"a","resourceVersion":
//	revised "17"
//	after   ,"labels":{…}},"spec":…}
func (jsonEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte) {
	s := jsonScanner{text: item}
	readMetadataMember := func(key []byte) error {
		value, err := s.value()
		if string(key) == "resourceVersion" {
			before, after = item[:s.at-len(value)], item[s.at:]
		}
		return err
	}
	_ = s.object(func(key []byte) error { // ParseItem has read the item without an error.
		if string(key) != "metadata" {
			return s.skip()
		}
		return s.object(readMetadataMember)
	})
	return before, strconv.AppendQuote(nil, strconv.FormatUint(revision, 10)), after
}

// Revise implements Encoding. A longer or shorter revision changes the length that comes before the metadata. So the revised
// part begins there:
//
//	before   the item up to the metadata
//	revised  metadataHead (tag and new length), the fields before the revision (name, namespace and the like), newRevision
//	after    the rest of the metadata, and of the item
func (protobufEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte) {
	metadata, _ := singularField(item, metadataField) // ParseItem has found both fields.
	old, _ := singularField(metadata.content, metaRevisionField)
	newRevision := appendWireString(nil, metaRevisionField, strconv.FormatUint(revision, 10))
	sizeAfter := len(metadata.content) - old.end // The size of the rest of the metadata.
	metadataHead := appendWireLength(nil, metadataField, old.begin+len(newRevision)+sizeAfter)
	revised = slices.Concat(metadataHead, metadata.content[:old.begin], newRevision)
	return item[:metadata.begin], revised, item[metadata.end-sizeAfter:]
}
