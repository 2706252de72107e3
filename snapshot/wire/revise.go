package wire

import (
	"slices"
	"strconv"
)

// ReviseItem returns a copy of a list's item with another resourceVersion (see [Encoding.Revise]).
func ReviseItem(encoding Encoding, item []byte, revision uint64) []byte {
	before, revised, after := encoding.Revise(item, revision)
	return slices.Concat(before, revised, after)
}

// Revise implements Encoding. For example, at revision 17:
//
//	before   {"metadata":{"name":"a","resourceVersion":
//	revised  "17"
//	after    ,"labels":{…}},"spec":…}
func (jsonEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte) {
	begin, end := findJSONRevision(item)
	return item[:begin], strconv.AppendQuote(nil, strconv.FormatUint(revision, 10)), item[end:]
}

// findJSONRevision returns the bounds of the resourceVersion's value, which is item[begin:end]. ParseItem must accept the item.
func findJSONRevision(item []byte) (begin, end int) {
	s := jsonScanner{text: item}
	readMetadataMember := func(key []byte) error {
		value, err := s.value()
		if string(key) == "resourceVersion" {
			begin, end = s.at-len(value), s.at
		}
		return err
	}
	_ = s.object(func(key []byte) error { // There is no error, since ParseItem accepts the item.
		if string(key) == "metadata" {
			return s.object(readMetadataMember)
		}
		return s.skip()
	})
	return begin, end
}

// Revise implements Encoding. In protobuf, the length of the metadata comes before the metadata, and a revision with more or
// fewer digits changes this length. So the revised part begins with the tag and the length of the metadata:
//
//	before   the item up to the metadata; mostly empty, since the metadata is the first field
//	revised  the tag and the new length of the metadata, its fields before the revision (like the name), the new revision
//	after    the rest of the metadata, and the rest of the item
func (protobufEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte) {
	metadata, _ := singularField(item, metadataField) // There is no error here and below, since ParseItem accepts the item.
	oldField, _ := singularField(metadata.content, metaRevisionField)
	beforeOld := metadata.content[:oldField.begin]
	afterOld := metadata.content[oldField.end:]
	newField := appendWireField(nil, metaRevisionField, strconv.FormatUint(revision, 10))
	metadataHead := appendWireLength(nil, metadataField, len(beforeOld)+len(newField)+len(afterOld))
	after = item[metadata.end-len(afterOld):] // afterOld is the end of the metadata, and the rest of the item follows.
	return item[:metadata.begin], slices.Concat(metadataHead, beforeOld, newField), after
}
