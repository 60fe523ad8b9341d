package sql

import (
	"sync"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// The grammar, as structs with tags for participle.
//
// An expression is parsed as a flat list, operand operator operand …. The compiler turns the list into a tree by
// precedence (precedence.go), because a grammar rule for each level of precedence would cost a dozen calls per
// operand. The structs keep their positions in the text, because messages contain the position, and the plan for a
// client repeats parts of the query literally.

// statement is everything that can be parsed: a query, or the condition of a patch.
type statement struct {
	Query     *selectStmt `parser:"@@"`
	Condition *condition  `parser:"| @@"`
}

// condition is the predicate of a patch: a query without its SELECT.
type condition struct {
	From  *sourceRef `parser:"'FROM' @@"`
	Where *expr      `parser:"('WHERE' @@)?"`
}

// selectStmt is a SELECT: the query itself, or a subquery.
type selectStmt struct {
	Pos      lexer.Position
	Distinct bool         `parser:"'SELECT' @'DISTINCT'?"`
	Top      *operand     `parser:"('TOP' @@)?"`
	List     selection    `parser:"@@"`
	From     []*sourceRef `parser:"('FROM' @@ ('JOIN' @@)*)?"`
	Tail     tail         `parser:"@@"`
}

// selection is the list after SELECT. EndPos is needed to copy the text of the list into a rewritten query.
type selection struct {
	Pos    lexer.Position
	Star   bool    `parser:"@'*'"`
	Value  *expr   `parser:"| 'VALUE' @@"`
	Items  []*item `parser:"| @@ (',' @@)*"`
	EndPos lexer.Position
}

// tail is the part of the query from WHERE onward. The tail is a separate rule because its position is the end of
// FROM.
type tail struct {
	Pos    lexer.Position
	Where  *expr       `parser:"('WHERE' @@)?"`
	Group  []*expr     `parser:"('GROUP' 'BY' @@ (',' @@)*)?"`
	Rank   *orderRef   `parser:"('ORDER' 'BY' ('RANK' @@"`
	Order  []*orderRef `parser:"| @@ (',' @@)*))?"`
	Offset *operand    `parser:"('OFFSET' @@"`
	Limit  *operand    `parser:"'LIMIT' @@)?"`
}

// item is a column: an expression, with a name if the query gives a name.
type item struct {
	Expr  *expr  `parser:"@@"`
	Alias string `parser:"('AS'? @Ident)?"`
}

// sourceRef is a source of rows after FROM or JOIN. In `FROM x IN c.tags`, Name is x and In is c.tags. When the
// grammar reads x, the grammar cannot know whether x is an alias or a collection, so the compiler decides.
type sourceRef struct {
	Pos   lexer.Position
	Sub   *selectStmt `parser:"( '(' @@ ')'"`
	Name  string      `parser:"| @Ident"`
	Path  []*suffix   `parser:"@@* )"`
	In    *sourceRef  `parser:"( 'IN' @@"`
	Alias string      `parser:"| 'AS'? @Ident )?"`
}

// orderRef is a key of ORDER BY.
type orderRef struct {
	Expr *expr `parser:"@@"`
	Asc  bool  `parser:"(@'ASC'"`
	Desc bool  `parser:"| @'DESC')?"`
}

// operand is the count of TOP, OFFSET or LIMIT. As in the service, an operand is a number or a parameter, not an
// expression.
type operand struct {
	Pos   lexer.Position
	Value string `parser:"@Literal"`
}

// expr is an expression as a flat list: its first operand, then each operator with its right operand.
type expr struct {
	Pos    lexer.Position
	First  *unary  `parser:"@@"`
	Rest   []*link `parser:"@@*"`
	EndPos lexer.Position
}

// link is an operator with its right operand. Not is set for NOT IN, NOT LIKE and NOT BETWEEN. Before any other
// operator the compiler refuses Not, because the compiler knows the place better than the grammar.
type link struct {
	Pos   lexer.Position
	Not   bool   `parser:"@'NOT'?"`
	Op    string `parser:"@Op"`
	Right *unary `parser:"@@"`
}

// unary is an operand with its signs.
type unary struct {
	Signs   []string `parser:"@('NOT' | '-' | '+' | '~')*"`
	Primary *primary `parser:"@@"`
}

// primary is an operand without signs: a literal, a name, a group in brackets, an array or an object, followed by the
// steps into this value.
type primary struct {
	Pos     lexer.Position
	Literal string     `parser:"( @Literal"`
	Name    string     `parser:"| @Ident | @Call | @'UDF'"`
	Group   *args      `parser:"| @@"`
	Array   *arrayLit  `parser:"| @@"`
	Object  *objectLit `parser:"| @@ )"`
	Suffix  []*suffix  `parser:"@@*"`
}

// args is a list in round brackets: arguments of a function, a list of IN, a group, or a subquery. The rule for
// literals comes before the rule for expressions, because the parser takes the first rule that fits.
type args struct {
	Sub   *selectStmt `parser:"'(' ( @@"`
	Plain *literals   `parser:"| @@"`
	Exprs []*expr     `parser:"| @@ (',' @@)* )? ')'"`
}

// list returns the expressions, from whichever rule has read them.
func (a *args) list() []*expr { return a.Plain.or(a.Exprs) }

// arrayLit is an array in the query's text.
type arrayLit struct {
	Plain *literals `parser:"'[' (@@"`
	Exprs []*expr   `parser:"| @@ (',' @@)*)? ']'"`
}

// list returns the elements, from whichever rule has read them.
func (a *arrayLit) list() []*expr { return a.Plain.or(a.Exprs) }

// objectLit is an object in the query's text.
type objectLit struct {
	Members []*property `parser:"'{' (@@ (',' @@)*)? '}'"`
}

// property is a member of an objectLit. The grammar accepts numbers as keys; the compiler refuses them.
type property struct {
	Key   string `parser:"@(Ident | Literal)"`
	Value *expr  `parser:"':' @@"`
}

// suffix is a step into a value, or a call of the preceding name.
type suffix struct {
	Pos   lexer.Position
	Field string `parser:"'.' @Ident"`
	Index *expr  `parser:"| '[' @@ ']'"`
	Call  *args  `parser:"| @@"`
}

// parser is built when the first query is parsed. Building reflects over all these structs, and a server that only
// reads and writes items never needs a parser.
var parser = sync.OnceValue(func() *participle.Parser[statement] {
	return participle.MustBuild[statement](participle.Lexer(definition{}))
})
